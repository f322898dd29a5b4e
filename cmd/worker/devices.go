package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/host"
	"millrace/internal/operator"
	"millrace/internal/operator/userops"
	"millrace/internal/streams"
)

// openDevicesOr opens the devices that MILLRACE_DEVICE and MILLRACE_DEVICES name. openHost opens the CPU device.
// fellBack is true if the CPU device replaces GPUs because no GPU is usable. After an error, no device is open.
func openDevicesOr(cfg *config.Config, log *slog.Logger, openHost func(*config.Config) (device.Device, error)) (
	devices []device.Device, fellBack bool, err error) {
	return openDevicesReporting(cfg, log, openHost, func(err error) {
		log.Warn("A GPU IS LEFT OUT (name the GPUs to use in MILLRACE_DEVICES)", "reason", err)
	})
}

// openDevicesReporting does the same as openDevicesOr, but calls leftOut for each GPU that it omits.
func openDevicesReporting(cfg *config.Config, log *slog.Logger, openHost func(*config.Config) (device.Device, error), leftOut func(error)) (
	devices []device.Device, fellBack bool, err error) {
	if cfg.Device != "host" {
		devices, err = openGPUs(cfg, leftOut)
		if err == nil {
			devices, err = loadEverywhere(cfg, devices, log)
			return devices, false, err
		}
		if wrong := wrongKernels(cfg); wrong != nil {
			return nil, false, wrong
		}
		if cfg.Device == "cuda" {
			return nil, false, err
		}
		if err := refuseFallback(cfg, err); err != nil {
			return nil, false, err
		}
		warnOfFallback(log, err)
		fellBack = true
	}
	d, err := openHost(cfg)
	if err != nil {
		return nil, fellBack, err
	}
	return []device.Device{d}, fellBack, nil
}

// hostMemory returns the number of bytes that the host device may allocate as device memory. The device may allocate
// the same amount of pinned memory. Each amount is enough for the lanes, their results and the scratch pool.
func hostMemory(cfg *config.Config) int64 {
	const lane = 4 // input and results, each doubled because of rounding
	slots := int64(operator.StringBytes(operator.Kernels(cfg.ParsedOperators()), cfg.BatchPayloads, int(cfg.BatchBytes)))
	return int64(cfg.ScratchLimit) + int64(cfg.Lanes)*2*lane*(int64(cfg.BatchBytes)+int64(cfg.BatchPayloads)*maxRecord(cfg)+slots)
}

// maxRecord returns the maximum size in bytes of one payload's results.
func maxRecord(cfg *config.Config) int64 {
	bytes := int64(4) // the payload's entry in the offsets table
	for _, op := range operator.Kernels(cfg.ParsedOperators()) {
		bytes += int64(op.Stride())
		if _, ok := op.(operator.Refuser); ok {
			bytes++ // the payload's status
		}
	}
	return bytes
}

func openHost(cfg *config.Config) (device.Device, error) {
	kernels, err := userops.Kernels(cfg.ParsedOperators())
	if err != nil {
		return nil, usageError{err} // a file is missing
	}
	d, err := host.Open(host.Options{Kernels: append(hostKernels(), kernels...), MemoryLimit: hostMemory(cfg)})
	if err != nil {
		return nil, err
	}
	return injectFailures(d)
}

// openGPUs opens the GPUs that MILLRACE_DEVICES names. If the variable names none, openGPUs omits unusable GPUs, such
// as old models, and calls report for each. It returns an error if no GPU is left.
func openGPUs(cfg *config.Config, report func(leftOut error)) ([]device.Device, error) {
	if err := cuda.AskConnections(cfg.Lanes + int(streams.NumEngines)); err != nil { // one stream per lane and one per engine
		return nil, fmt.Errorf("ask CUDA for hardware queues: %w", err)
	}
	found, err := cuda.List(cfg.Kernels)
	if err != nil {
		return nil, err
	}
	chosen, err := choose(found, cfg.Devices)
	if err != nil {
		return nil, err
	}
	var open []device.Device
	var leftOut []error
	for _, info := range chosen {
		d, err := cuda.Open(cuda.Options{Library: cfg.Kernels, Ordinal: info.Ordinal})
		if err == nil {
			open = append(open, d)
			continue
		}
		err = fmt.Errorf("open GPU %d (%s): %w", info.Ordinal, info.ID, err)
		if errors.Is(err, device.ErrUnavailable) && anyGPU(cfg) {
			leftOut = append(leftOut, err)
			continue
		}
		return nil, errors.Join(append(leftOut, err, closeDevices(open))...)
	}
	if len(open) == 0 {
		return nil, errors.Join(leftOut...)
	}
	for _, err := range leftOut {
		report(err)
	}
	return open, nil
}

func closeDevices(devices []device.Device) error {
	var errs []error
	for _, d := range devices {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// anyGPU reports whether the configuration leaves the choice of GPUs to the worker.
func anyGPU(cfg *config.Config) bool {
	return len(cfg.Devices) == 0 || len(cfg.Devices) == 1 && cfg.Devices[0] == "all"
}

// choose returns the GPUs that names lists by ordinal or UUID, in the order of names and without duplicates. If names
// is empty or contains only "all", it returns found.
func choose(found []device.Info, names []string) ([]device.Info, error) {
	if len(names) == 0 || len(names) == 1 && names[0] == "all" {
		return found, nil
	}
	var chosen []device.Info
	var missing []string
	for _, name := range names {
		i := slices.IndexFunc(found, func(d device.Info) bool {
			return strings.EqualFold(d.ID, name) || strconv.Itoa(d.Ordinal) == name
		})
		switch {
		case i < 0:
			missing = append(missing, name)
		case !slices.Contains(chosen, found[i]):
			chosen = append(chosen, found[i])
		}
	}
	if len(missing) > 0 {
		var have []string
		for _, d := range found {
			have = append(have, fmt.Sprintf("%d (%s)", d.Ordinal, d.ID))
		}
		return nil, device.Errorf("choose GPUs", "", device.ErrNotFound, "MILLRACE_DEVICES names %s, but this machine has %s",
			strings.Join(missing, ", "), strings.Join(have, ", "))
	}
	return chosen, nil
}

// wrongKernels returns a usageError if MILLRACE_KERNELS names a library that can't be opened. Otherwise it returns nil.
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

// refuseFallback returns nil if the worker may use the CPU instead of GPUs. Otherwise it returns err, the reason why no
// GPU is usable. The worker must not use the CPU if the configuration names GPUs. A kernel library that works doesn't
// prevent the fallback, because an image may configure one and run without a GPU.
func refuseFallback(cfg *config.Config, err error) error {
	named := cfg.Devices.String() != "all"
	if !named && (errors.Is(err, device.ErrUnavailable) || errors.Is(err, device.ErrABI) && cfg.Kernels == "") {
		return nil
	}
	return err
}

// warnOfFallback logs that the CPU computes. It writes two short lines, because new users read them.
func warnOfFallback(log *slog.Logger, err error) {
	log.Warn("NO GPU: FALLING BACK TO THE CPU", "reason", fallbackReason(err))
	log.Warn("the CPU is much slower: set MILLRACE_DEVICE to host to hide this, or to cuda to stop instead")
}

// fallbackReason returns a short reason if there is no kernel library. Otherwise it returns the text of err.
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
		return err.Error() // the library exists but can't be opened
	}
	return "there is no kernel library, libmillrace.so; worker check says more"
}

// spin is the time that the pipeline polls for a small batch that is alone on a GPU. Nearly all such batches complete
// in that time (see docs/benchmarks/device.md, latency).
const spin = 60 * time.Microsecond

// pipelineConfig returns the configuration of the pipeline on d.
func pipelineConfig(cfg *config.Config, d device.Info, ops []operator.Operator, observer streams.Observer) streams.Options {
	o := streams.Options{
		Lanes: cfg.Lanes, BatchBytes: int(cfg.BatchBytes), BatchPayloads: cfg.BatchPayloads,
		ScratchLimit: int64(cfg.ScratchLimit), Operators: ops, Observer: observer, Ranges: cfg.NVTX,
		Deadline: streams.Deadline{Min: cfg.BatchDeadlineMin, Max: cfg.BatchDeadlineMax},
	}
	if d.Kind == "cuda" {
		o.Schedule = streams.Triple
	}
	// Polling occupies a core. With few cores, other goroutines need all of them. A CPU device needs the cores to
	// compute.
	if d.Kind == "cuda" && runtime.GOMAXPROCS(0) >= 4 {
		o.Spin = spin
	}
	return o
}
