package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/host"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/conformance"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/develop"
	include "millrace/kernels/include"
)

// side is an operator on one of the devices on which `worker operator test` runs it.
type side struct {
	name, with  string // "CPU" or "GPU"; the device, and what compiled the operator
	device      device.Device
	description *compiled.Description
	missing     error // why there is none
	runner      *conformance.Runner
	stopped     bool // the device failed, or it still computes
}

// close closes everything. What a device has that failed, or that still computes, ends with the process.
func (s *side) close() error {
	if s.device == nil || s.stopped {
		return nil
	}
	var err error
	if s.runner != nil {
		err = s.runner.Close()
	}
	var leak *device.LeakError // the loaded operator, which the device unloads
	if closed := s.device.Close(); !errors.As(closed, &leak) {
		err = errors.Join(err, closed)
	}
	return err
}

// operatorFiles are the files of an operator that is to be tested. An empty name is a missing file. host is a library with host code, and
// then the only file.
type operatorFiles struct{ source, cpu, gpu, host string }

// folder returns the folder of the operator, where its tables are.
func (f operatorFiles) folder() string { return filepath.Dir(cmp.Or(f.source, f.cpu, f.gpu, f.host)) }

// findFiles returns the files for an operator that a user named by one of them. A compiled file goes with the one beside it for the other
// device.
func findFiles(named string) (operatorFiles, error) {
	if _, err := os.Stat(named); err != nil {
		return operatorFiles{}, err
	}
	stem := develop.Stem(named)
	beside := func(suffixes ...string) string {
		for _, suffix := range suffixes {
			if _, err := os.Stat(stem + suffix); err == nil {
				return stem + suffix
			}
		}
		return ""
	}
	switch suffix := strings.TrimPrefix(named, stem); suffix {
	case develop.SourceSuffix:
		return operatorFiles{source: named}, nil
	case develop.CPUSuffix:
		return operatorFiles{cpu: named, gpu: beside(develop.GPUSuffixes...)}, nil
	case develop.CubinSuffix, develop.FatbinSuffix, develop.PTXSuffix:
		return operatorFiles{cpu: beside(develop.CPUSuffix), gpu: named}, nil
	case develop.HostSuffix:
		return operatorFiles{host: named}, nil
	}
	return operatorFiles{}, usageError{fmt.Errorf("%s: the file of an operator has a name that ends with %s, %s, %s or %s", named, develop.SourceSuffix,
		develop.CPUSuffix, strings.Join(develop.GPUSuffixes, ", "), develop.HostSuffix)}
}

// compileFailed makes the error of a source that doesn't compile a usage error, which is the user's to correct.
func compileFailed(err error) error {
	var cpu *develop.CompileError
	var gpu *cuda.CompileError
	if errors.As(err, &cpu) || errors.As(err, &gpu) {
		return usageError{err}
	}
	return err
}

// openCPU opens the operator on the host device. A machine without a compiler is no error: the result says what is missing.
func openCPU(ctx context.Context, files operatorFiles) (*side, error) {
	s := &side{name: "CPU", with: "the library " + files.cpu}
	if files.host != "" {
		s.missing = fmt.Errorf("%s has host code that launches kernels, so only GPUs run it", files.host)
		return s, nil
	}
	path := files.cpu
	if files.source != "" {
		folder, err := os.MkdirTemp("", "millrace-operator-")
		if err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		path = filepath.Join(folder, "operator"+develop.CPUSuffix)
		_, err = develop.Compile(ctx, files.source, path)
		if errors.Is(err, develop.ErrNoCompiler) {
			s.missing = err
			return s, nil
		}
		if err != nil {
			return nil, compileFailed(err)
		}
		s.with = "compiled with the machine's C++ compiler"
	}
	if path == "" {
		s.missing = fmt.Errorf("there is no %s beside %s", filepath.Base(develop.Stem(files.gpu)+develop.CPUSuffix), files.gpu)
		return s, nil
	}
	l, err := cpulib.Open(path)
	if err != nil {
		return nil, err
	}
	d, err := host.Open(host.Options{Kernels: []device.HostKernel{l}})
	if err != nil {
		return nil, err
	}
	s.device, s.description, s.with = d, l.Description(), d.Info().Name+", "+s.with
	s.description.Folder = files.folder()
	return s, nil
}

// openGPU opens the operator on the first GPU that the configuration permits. A machine without a usable GPU, kernel library or NVRTC is no
// error: the result says what is missing.
func openGPU(files operatorFiles, cfg *config.Config) (*side, error) {
	s := &side{name: "GPU", with: cmp.Or(files.gpu, files.host)}
	if files.source == "" && s.with == "" {
		s.missing = fmt.Errorf("there is no %s beside %s", filepath.Base(develop.Stem(files.cpu)+develop.CubinSuffix), files.cpu)
		return s, nil
	}
	gpus, err := cuda.List(cfg.Kernels)
	if err == nil {
		gpus, err = choose(gpus, cfg.Devices)
	}
	if err == nil && len(gpus) == 0 {
		err = errors.New("this machine has no GPU")
	}
	if err != nil {
		s.missing, err = compilesForGPUs(err, files, cfg)
		return s, err
	}
	load, err := s.code(files, cfg, gpus[0].Compute)
	if errors.Is(err, device.ErrUnavailable) {
		s.missing = err
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	d, err := cuda.Open(cuda.Options{Library: cfg.Kernels, Ordinal: gpus[0].Ordinal})
	if err != nil {
		s.missing = err
		return s, nil
	}
	s.device, s.with = d, gpus[0].Name+", "+s.with
	if s.description, err = loadOperator(d, load); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", cmp.Or(files.source, files.gpu, files.host), err), d.Close())
	}
	s.description.Folder = files.folder()
	return s, nil
}

// compilesForGPUs compiles a source although there is no GPU, because a machine without one may have NVRTC. It returns why the operator isn't
// tested on a GPU. The error is the compiler's if the source is wrong.
func compilesForGPUs(reason error, files operatorFiles, cfg *config.Config) (missing, err error) {
	const compute = "9.0"
	if files.source == "" {
		return reason, nil
	}
	c, err := cuda.OpenCompiler(cfg.Kernels, findNVRTC(cfg))
	if err != nil {
		return reason, nil //nolint:nilerr // a machine without a GPU needs no NVRTC
	}
	if _, err := compileForGPU(c, files.source, compute); err != nil {
		return nil, err
	}
	return fmt.Errorf("%w; NVRTC %s compiles it for GPUs of compute capability %s", reason, c.Version(), compute), nil
}

// code reads or compiles the operator's code for a GPU of that compute capability. It returns what loads it.
func (s *side) code(files operatorFiles, cfg *config.Config, compute string) (load func(device.Loader) (device.Module, error), err error) {
	if files.host != "" {
		return func(l device.Loader) (device.Module, error) { return l.LoadLibrary(files.host) }, nil
	}
	var image []byte
	if files.source == "" {
		image, err = os.ReadFile(files.gpu)
	} else {
		var c *cuda.Compiler
		if c, err = cuda.OpenCompiler(cfg.Kernels, findNVRTC(cfg)); err != nil {
			return nil, err
		}
		s.with = "compiled with NVRTC " + c.Version()
		image, err = compileForGPU(c, files.source, compute)
	}
	return func(l device.Loader) (device.Module, error) { return l.LoadOperator(image) }, err
}

// compileForGPU compiles a source file for a compute capability, such as "9.0". It prints the compiler's warnings.
func compileForGPU(c *cuda.Compiler, source, compute string) ([]byte, error) {
	_, text, err := develop.ReadSource(source)
	if err != nil {
		return nil, err
	}
	image, warnings, err := c.Compile(cuda.Source{Name: source, Text: string(text), Headers: include.Headers, Compute: compute,
		Options: []string{compiled.SourceOption(text)}})
	if err != nil {
		return nil, compileFailed(err)
	}
	if text := strings.TrimSpace(warnings); text != "" {
		fmt.Fprintln(os.Stderr, text)
	}
	return image, nil
}

// loadOperator loads an operator and returns what it says about itself. The device unloads it when it is closed.
func loadOperator(d device.Device, load func(device.Loader) (device.Module, error)) (*compiled.Description, error) {
	loader, ok := d.(device.Loader)
	if !ok {
		return nil, fmt.Errorf("%s: %w: this device runs no operators of your own", d.Info().ID, device.ErrUnavailable)
	}
	m, err := load(loader)
	if err != nil {
		return nil, err
	}
	return compiled.Decode(m.Description())
}

// sameDeclarations returns an error if the sides have different operators.
func sameDeclarations(a, b *compiled.Description) error {
	if x, y := declaration(a), declaration(b); x != y {
		return fmt.Errorf("the files for the CPU and for the GPU declare different operators: compile both from one source\nCPU: %s\nGPU: %s", x, y)
	}
	if none := [32]byte{}; a.Source != b.Source && a.Source != none && b.Source != none {
		return errors.New("the files for the CPU and for the GPU were compiled from different versions of the source: run `worker operator build` for both")
	}
	return nil
}

// ownNames returns an error if a side has the name of a built-in operator.
func ownNames(file string, sides ...*side) error {
	for _, s := range sides {
		if s.missing != nil {
			continue
		}
		if err := ownName(file, s.description); err != nil {
			return err
		}
	}
	return nil
}

// ownName returns an error if an operator has the name of a built-in one, which no worker would find.
func ownName(file string, d *compiled.Description) error {
	if err := compiled.CheckName(d.Name); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// declaration returns everything about an operator that results depend on as text.
func declaration(d *compiled.Description) string {
	return fmt.Sprintf("%s, version %d, parameters %+v, fields %+v, reasons %q, passes %+v, scratch %+v", d.Name, d.Version, d.Parameters, d.Fields, d.Reasons,
		d.Passes, d.Scratch)
}
