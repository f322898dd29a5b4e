//go:build cgo

package cuda

import (
	"fmt"
	"io/fs"
	"strings"

	"millrace/internal/device"
)

// Compiler compiles operators for GPUs with NVRTC. It needs no GPU, and is safe for concurrent use. It can't be closed.
type Compiler struct {
	lib     *library
	handle  compilerHandle
	version int
}

// OpenCompiler opens NVRTC through the kernel library (see Options.Library). nvrtc is the path of libnvrtc.so. If it is
// empty, OpenCompiler searches beside the kernel library and then on the system's search path. OpenCompiler fails with
// device.ErrUnavailable if there is no kernel library or no NVRTC. It fails with device.ErrABI if the kernel library
// can't be used.
func OpenCompiler(library, nvrtc string) (*Compiler, error) {
	l, err := openLibrary(library)
	if err != nil {
		return nil, err
	}
	handle, version, err := l.compilerOpen(nvrtc)
	if err != nil {
		return nil, err
	}
	return &Compiler{lib: l, handle: handle, version: version}, nil
}

// Version returns the version of NVRTC, for example "12.4".
func (c *Compiler) Version() string { return versionText(c.version) }

// Compile compiles an operator. It returns a cubin and the compiler's warnings. The error is a *CompileError if the
// source is invalid.
func (c *Compiler) Compile(s Source) (image []byte, warnings string, err error) {
	compute, err := computeNumber(s.Compute)
	if err != nil {
		return nil, "", err
	}
	var names, texts []string
	if s.Headers != nil {
		names, texts, err = headers(s.Headers)
		if err != nil {
			return nil, "", err
		}
	}
	for _, text := range append([]string{s.Name, s.Text}, s.Options...) {
		if strings.ContainsRune(text, 0) {
			return nil, "", device.Errorf(opCompile, "", device.ErrInvalid, "%s contains a zero byte", s.Name)
		}
	}
	image, log, err := c.lib.compile(c.handle, &s, compute, names, texts)
	if err != nil {
		return nil, "", err
	}
	if image == nil {
		return nil, "", &CompileError{Name: s.Name, Log: log}
	}
	return image, log, nil
}

// computeNumber returns a compute capability in the library's format, for example 90 for "9.0".
func computeNumber(text string) (int, error) {
	var major, minor int
	if _, err := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil || major < 1 || minor < 0 || minor > 9 {
		return 0, device.Errorf(opCompile, "", device.ErrInvalid, "the compute capability is %q: give one such as 9.0", text)
	}
	return 10*major + minor, nil
}

// headers returns the paths and the contents of all files.
func headers(files fs.FS) (names, texts []string, err error) {
	err = fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		names, texts = append(names, path), append(texts, string(text))
		return err
	})
	return names, texts, err
}
