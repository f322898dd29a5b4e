package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/device/cuda"
	"millrace/internal/ingest/embedded"
	"millrace/internal/telemetry"
)

// The linker sets these (see the Makefile). After a plain go build, build reads them from the module information.
var (
	version = ""
	commit  = ""
)

// build returns the version of this program.
func build() telemetry.Build {
	b := telemetry.Build{Version: version, Commit: commit, GoVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if ok && b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	if ok && b.Commit == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = s.Value
			}
		}
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	return b
}

// versionCommand returns `worker version`.
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

// libraryRows returns the versions of the kernel library, CUDA and the driver. missing is the reason if there is no library. A
// worker without one computes on the CPU.
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
