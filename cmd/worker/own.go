package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/operator"
	"millrace/internal/operator/cache"
	"millrace/internal/operator/images"
	"millrace/internal/operator/own"
	include "millrace/kernels/include"
)

// findOperators returns the operators in the folders of MILLRACE_OPERATOR_PATH, for the devices that the configuration names.
func findOperators(cfg *config.Config) ([]operator.Source, error) {
	var g own.GPUs
	if cfg.Device != "host" {
		g = &gpus{cfg: cfg}
	}
	found, err := own.Find(cfg.OperatorPath, g)
	sources := make([]operator.Source, len(found))
	for i, s := range found {
		sources[i] = s
	}
	return sources, err
}

// gpus implements own.GPUs with the GPUs that the configuration names.
type gpus struct {
	cfg      *config.Config
	maker    *images.Maker // nil until something must be compiled
	uncached error         // why there is no cache, although the configuration names a folder
}

// Computes implements own.GPUs.
func (g *gpus) Computes() ([]string, error) {
	found, err := cuda.List(g.cfg.Kernels)
	if err != nil {
		return nil, err
	}
	chosen, err := choose(found, g.cfg.Devices)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, info := range chosen {
		if !slices.Contains(all, info.Compute) {
			all = append(all, info.Compute)
		}
	}
	return all, nil
}

// Image implements own.GPUs.
func (g *gpus) Image(s images.Source, compute string) (images.Image, error) {
	if g.maker == nil {
		g.maker, g.uncached = newMaker(g.cfg)
	}
	image, err := g.maker.Image(s, compute)
	if image.NotKept == nil {
		image.NotKept = g.uncached
	}
	return image, err
}

// newMaker returns what compiles operators as the configuration says. uncached is the reason if there can't be a cache.
func newMaker(cfg *config.Config) (m *images.Maker, uncached error) {
	path := findNVRTC(cfg)
	m = &images.Maker{Identity: identity(path), Open: func() (images.Compiler, error) {
		c, err := cuda.OpenCompiler(cfg.Kernels, path)
		if err != nil {
			return nil, err
		}
		return compiler{c}, nil
	}}
	m.Cache, uncached = cache.Open(cfg.CacheDir)
	return m, uncached
}

// findNVRTC returns the path of NVRTC: the configured one, or one beside the kernel library. It returns "" if the system must find it.
func findNVRTC(cfg *config.Config) string {
	if cfg.NVRTC != "" {
		return cfg.NVRTC
	}
	versions, err := cuda.LibraryVersions(cfg.Kernels)
	if err != nil {
		return ""
	}
	folders := append([]string{filepath.Dir(versions.Library)}, filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))...)
	for _, folder := range append(folders, "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64") {
		for _, name := range []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"} { // the order of the kernel library
			if path := filepath.Join(folder, name); isFile(path) {
				return path
			}
		}
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// identity returns the name, with its version, and the size of a library's file. Opening NVRTC to ask for its version takes longer than everything
// else if the cache has the image.
func identity(path string) string {
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	info, err := os.Stat(file)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s %d", filepath.Base(file), info.Size())
}

// compiler implements images.Compiler with NVRTC.
type compiler struct{ nvrtc *cuda.Compiler }

// Version implements images.Compiler.
func (c compiler) Version() string { return c.nvrtc.Version() }

// Compile implements images.Compiler.
func (c compiler) Compile(s images.Source, compute string, options []string) (image []byte, warnings string, err error) {
	return c.nvrtc.Compile(cuda.Source{Name: s.Name, Text: string(s.Text), Headers: include.Headers, Compute: compute, Options: options})
}

// loadEverywhere loads the operators of your own into each device. After an error no device is open.
func loadEverywhere(cfg *config.Config, devices []device.Device, log *slog.Logger) ([]device.Device, error) {
	for _, d := range devices {
		err := loadOperators(cfg, d, log)
		if err == nil {
			continue
		}
		if wrong := (*cuda.CompileError)(nil); errors.As(err, &wrong) || errors.Is(err, device.ErrInvalid) {
			err = usageError{err} // the operator's file must be changed
		}
		errs := []error{err}
		for _, d := range devices {
			errs = append(errs, d.Close())
		}
		return nil, errors.Join(errs...)
	}
	return devices, nil
}

// loadOperators loads the operators of your own into a GPU and logs where they came from.
func loadOperators(cfg *config.Config, d device.Device, log *slog.Logger) error {
	loaded, err := own.Load(cfg.ParsedOperators(), d)
	for _, l := range loaded {
		log.Info("operator loaded", "operator", l.Name, "version", l.Version, "file", l.Path, "device", d.Info().ID,
			"cached", l.Image.Cached, "took", l.Image.Took.String())
		for _, refused := range l.Refused {
			log.Warn("a compiled file of an operator is for another GPU, so another file is used", "operator", l.Name, "reason", refused)
		}
		if l.Image.Warnings != "" {
			log.Warn("the compiler warns about an operator", "operator", l.Name, "warnings", l.Image.Warnings)
		}
		if l.Image.NotKept != nil {
			log.Warn("the compiled operator can't be kept in MILLRACE_CACHE_DIR, so the next start compiles it again", "operator", l.Name, "reason", l.Image.NotKept)
		}
	}
	return err
}
