package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/operator"
	"millrace/internal/operator/cache"
	"millrace/internal/operator/images"
	"millrace/internal/operator/userops"
	include "millrace/kernels/include"
)

// findOwn returns the operators in the folders of MILLRACE_OPERATOR_PATH, for the devices that the configuration names.
func findOwn(cfg *config.Config) ([]*userops.Source, error) {
	if cfg.Device == "host" {
		return userops.Find(cfg.OperatorPath, nil)
	}
	return userops.Find(cfg.OperatorPath, &gpus{cfg: cfg})
}

// findOperators is a config.Finder. It returns the operators that findOwn finds.
func findOperators(cfg *config.Config) (sources []operator.Source, err error) {
	found, err := findOwn(cfg)
	for _, s := range found {
		sources = append(sources, s)
	}
	return sources, err
}

// gpus implements userops.GPUs and devkit.GPU with the GPUs that the configuration names.
type gpus struct {
	cfg      *config.Config
	warnings io.Writer     // destination of the compiler's warnings; nil for none
	maker    *images.Maker // nil until something must be compiled
	uncached error         // reason why the cache in the configured folder can't be used
}

// compileGPUs returns the GPUs for `worker operator`, which compiles without a cache and prints warnings.
func compileGPUs() *gpus {
	cfg, _ := config.Load(nil) // only the kernel library and the GPUs matter, and cuda.List reports their errors
	cfg.CacheDir = ""
	return &gpus{cfg: cfg, warnings: os.Stderr}
}

// chosen returns the GPUs, at least one.
func (g *gpus) chosen() ([]device.Info, error) {
	found, err := cuda.List(g.cfg.Kernels)
	if err != nil {
		return nil, err
	}
	chosen, err := choose(found, g.cfg.Devices)
	if err == nil && len(chosen) == 0 {
		err = errors.New("this machine has no GPU")
	}
	return chosen, err
}

// Computes implements userops.GPUs.
func (g *gpus) Computes() (all []string, err error) {
	chosen, err := g.chosen()
	for _, info := range chosen {
		if !slices.Contains(all, info.Compute) {
			all = append(all, info.Compute)
		}
	}
	return all, err
}

// Open implements devkit.GPU with the first GPU.
func (g *gpus) Open() (device.Device, error) {
	chosen, err := g.chosen()
	if err != nil {
		return nil, err
	}
	return cuda.Open(cuda.Options{Library: g.cfg.Kernels, Ordinal: chosen[0].Ordinal})
}

// Compiler implements devkit.GPU.
func (g *gpus) Compiler() (version string, err error) { return g.images().Version() }

// Image implements userops.GPUs.
func (g *gpus) Image(s images.Source, compute string) (images.Image, error) {
	image, err := g.images().Image(s, compute)
	if image.NotKept == nil {
		image.NotKept = g.uncached
	}
	if text := strings.TrimSpace(image.Warnings); text != "" && g.warnings != nil {
		_, _ = fmt.Fprintln(g.warnings, text)
	}
	return image, err
}

// images returns the operator compiler that the configuration describes. It creates the compiler at the first call.
func (g *gpus) images() *images.Maker {
	if g.maker == nil {
		path := findNVRTC(g.cfg)
		g.maker = &images.Maker{Identity: identity(path), Open: func() (images.Compiler, error) {
			c, err := cuda.OpenCompiler(g.cfg.Kernels, path)
			if err != nil {
				return nil, err
			}
			return compiler{c}, nil
		}}
		g.maker.Cache, g.uncached = cache.Open(g.cfg.CacheDir)
	}
	return g.maker
}

// findNVRTC returns the path of NVRTC. It is the configured path, or the path of a library beside the kernel library or in a common folder.
// It is "" if the system must find NVRTC.
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
		for _, name := range []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"} { // same order as in the kernel library
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

// identity returns the name and the size of a library's file, or "" if the file can't be read. The name contains
// the version. The cache uses this text instead of NVRTC's version, because opening NVRTC takes longer than
// reading an image.
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
type compiler struct{ *cuda.Compiler }

// Compile implements images.Compiler.
func (c compiler) Compile(s images.Source, compute string, options []string) (image []byte, warnings string, err error) {
	return c.Compiler.Compile(cuda.Source{Name: s.Name, Text: string(s.Text), Headers: include.Headers, Compute: compute, Options: options})
}

// loadEverywhere loads the user's operators into each device. After an error, no device is open.
func loadEverywhere(cfg *config.Config, devices []device.Device, log *slog.Logger) ([]device.Device, error) {
	for _, d := range devices {
		err := loadOperators(cfg, d, log)
		if err == nil {
			continue
		}
		if wrong := (*cuda.CompileError)(nil); errors.As(err, &wrong) || errors.Is(err, device.ErrInvalid) {
			err = usageError{err} // the operator's file must be changed
		}
		return nil, errors.Join(err, closeDevices(devices))
	}
	return devices, nil
}

// loadOperators loads the user's operators into a GPU and logs their files.
func loadOperators(cfg *config.Config, d device.Device, log *slog.Logger) error {
	loaded, err := userops.Load(cfg.ParsedOperators(), d)
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
