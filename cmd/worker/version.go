package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/device/cuda"
	"millrace/internal/ingest/embedded"
	"millrace/internal/telemetry"
)

// unversioned is the version of a program without a version from the linker or from Go's build information.
const unversioned = "a build without a version"

// The linker sets these variables (see the Makefile). After a plain go build, the function build uses Go's build
// information.
var (
	version = ""
	commit  = ""
)

func build() telemetry.Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(version, commit, info)
}

// buildOf returns the version that the linker set, or otherwise the version in Go's build information. Go derives that
// information from the tags of a checkout, except in a build with -buildvcs=false.
func buildOf(version, commit string, info *debug.BuildInfo) telemetry.Build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	revision := settings["vcs.revision"]
	revision = revision[:min(len(revision), 12)] // the Makefile uses the same length
	if revision != "" && settings["vcs.modified"] == "true" {
		revision += "-dirty"
	}
	b := telemetry.Build{Version: cmp.Or(version, strings.TrimPrefix(info.Main.Version, "(devel)")), GoVersion: runtime.Version()}
	b.Commit = cmp.Or(commit, revision, "unknown")
	if b.Version == "" && b.Commit != "unknown" {
		b.Version = "a build of a checkout"
	}
	b.Version = cmp.Or(b.Version, unversioned)
	return b
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "print the versions of the worker, its libraries and the driver",
		Long: "Prints the versions of the worker, its kernel library, CUDA and the driver.",
		Args: flagsOnly,
		RunE: func(*cobra.Command, []string) error { return printVersion() },
	}
}

// printVersion implements `worker version` and `worker --version`.
func printVersion() error {
	b := build()
	rows := [][]string{{"part", "version"}, {"millrace", b.Version}, {"commit", b.Commit}, {"go", b.GoVersion},
		{"embedded NATS server", cmp.Or(embedded.Version, "none")}}
	library, missing := libraryRows()
	if err := console.Table(os.Stdout, append(rows, library...)); err != nil {
		return err
	}
	if missing != nil {
		text := fmt.Sprintf("no kernel library, so the worker computes on the CPU: %v\n", missing)
		if console.IsTerminal(os.Stdout) {
			text = console.Wrap(text, width(os.Stdout), 0)
		}
		fmt.Print("\n", text)
	}
	return nil
}

// libraryRows returns the versions of the kernel library, CUDA and the driver. missing is the reason if there is no
// library. A worker without a library computes on the CPU.
func libraryRows() (rows [][]string, missing error) {
	cfg, _ := config.Load(nil) // worker version works with a wrong configuration too
	v, err := cuda.LibraryVersions(cfg.Kernels)
	if err != nil {
		return [][]string{{"kernel library", "none"}}, err
	}
	return [][]string{
		{"kernel library", v.Library}, {"kernel ABI", fmt.Sprint(v.ABI)},
		{"CUDA runtime", v.Runtime}, {"CUDA driver", cmp.Or(v.Driver, "none")},
	}, nil
}
