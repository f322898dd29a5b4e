package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"millrace/internal/console"
	"millrace/internal/device/cuda"
	"millrace/internal/ingest/embedded"
	"millrace/internal/telemetry"
)

// Set by the linker (see the Makefile); a plain go build leaves them to what Go knows of the module.
var (
	version = ""
	commit  = ""
)

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

func runVersion(_ context.Context, args []string) error {
	if err := parse(flags("version", "Says which versions are at work: of the worker, its kernel library, CUDA and the driver."), args); err != nil {
		return err
	}
	b := build()
	rows := [][]string{{"part", "version"}, {"millrace", b.Version}, {"commit", b.Commit}, {"go", b.GoVersion},
		{"embedded NATS server", cmp.Or(embedded.Version, "none")}}
	library, missing := libraryRows()
	if err := console.Table(os.Stdout, append(rows, library...)); err != nil {
		return err
	}
	if missing != nil {
		fmt.Printf("\nno kernel library, so the CPU computes: %v\n", missing)
	}
	return nil
}

// libraryRows say what the kernel library is, or why there is none. A worker without one is whole: it
// computes on the CPU.
func libraryRows() (rows [][]string, missing error) {
	cfg, _ := loadConfig() // a bad configuration does not keep anybody from reading a version
	v, err := cuda.LibraryVersions(cfg.Kernels)
	if err != nil {
		return [][]string{{"kernel library", "none"}}, err
	}
	return [][]string{
		{"kernel library", v.Library}, {"kernel ABI", fmt.Sprint(v.ABI)},
		{"CUDA runtime", v.Runtime}, {"CUDA driver", v.Driver},
	}, nil
}
