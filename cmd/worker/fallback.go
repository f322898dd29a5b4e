package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
)

// wrongKernels returns a usageError if MILLRACE_KERNELS names a library that can't be opened, and otherwise nil.
func wrongKernels(cfg *config.Config) error {
	if cfg.Kernels == "" {
		return nil
	}
	_, err := cuda.LibraryVersions(cfg.Kernels)
	if err == nil {
		return nil
	}
	without := "the CPU"
	if cfg.Device == "cuda" {
		without = "the library beside the worker"
	}
	return usageError{fmt.Errorf("MILLRACE_KERNELS can't be used: correct it, or unset it to use %s: %w", without, err)}
}

// refuseFallback returns the error of a worker that may not use the CPU instead of GPUs, and nil if it may. err is why there are no GPUs. It may
// not if the configuration names GPUs. A kernel library that works is no obstacle, because an image may name one and run without a GPU.
func refuseFallback(cfg *config.Config, err error) error {
	named := cfg.Devices.String() != "all"
	if !named && (errors.Is(err, device.ErrUnavailable) || errors.Is(err, device.ErrABI) && cfg.Kernels == "") {
		return nil
	}
	return err
}

// warnOfFallback logs in two short lines that the CPU computes, because newcomers read them.
func warnOfFallback(log *slog.Logger, err error) {
	log.Warn("NO GPU: FALLING BACK TO THE CPU", "reason", fallbackReason(err))
	log.Warn("the CPU is much slower: set MILLRACE_DEVICE to host to hide this, or to cuda to stop instead")
}

// fallbackReason returns err in few words if there is simply no kernel library.
func fallbackReason(err error) string {
	var e *device.Error
	if !errors.As(err, &e) || e.Op != cuda.OpenLibrary || !errors.Is(err, device.ErrUnavailable) {
		return err.Error()
	}
	own, failed := os.Executable()
	if failed != nil {
		return err.Error()
	}
	if _, missing := os.Stat(filepath.Join(filepath.Dir(own), "libmillrace.so")); !errors.Is(missing, os.ErrNotExist) {
		return err.Error() // it is there and can't be opened
	}
	return "there is no kernel library, libmillrace.so; worker check says more"
}
