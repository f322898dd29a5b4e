// Package images compiles the source files of users' operators for GPUs, with NVRTC and a cache
// (docs/adr/0040-operators-of-your-own.md).
//
// Start reading with Maker.Image.
package images

import (
	"fmt"
	"sync"
	"time"

	"millrace/internal/operator/cache"
	"millrace/internal/operator/compiled"
	include "millrace/kernels/include"
)

// Source is the source file of an operator.
type Source struct {
	Name string // name of the file, for the compiler's messages
	Text []byte
}

// Compiler compiles operators for GPUs. Package cuda implements it.
type Compiler interface {
	// Version returns the compiler's version, for example "12.4".
	Version() string

	// Compile returns the image of a source for GPUs with a compute capability such as "9.0", and the compiler's warnings.
	Compile(s Source, compute string, options []string) (image []byte, warnings string, err error)
}

// Maker makes images. It is safe for concurrent use.
type Maker struct {
	// Open opens the compiler. Maker calls it for the first source that isn't in the cache. After a success, Maker keeps the
	// compiler.
	Open func() (Compiler, error)

	// Identity identifies the compiler in keys of the cache. If it is empty, keys contain the compiler's version, so Maker calls
	// Open even for an image that is in the cache.
	Identity string

	Cache *cache.Cache // nil means no cache

	mu       sync.Mutex
	compiler Compiler
	made     map[string]Image
}

// Image is the code of an operator, compiled for GPUs of one compute capability.
type Image struct {
	Code     []byte        // a cubin
	Warnings string        // warnings of the compiler
	Cached   bool          // whether the cache had the image
	NotKept  error         // error of keeping the image in the cache, or nil
	Took     time.Duration // time to compile or read the image
}

// Image returns the image of a source for GPUs with the compute capability compute. After a success, it returns the same image
// for the same source and capability without compiling again. If the source is wrong, it returns the compiler's error.
func (m *Maker) Image(s Source, compute string) (Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := compute + " " + s.Name + "\x00" + string(s.Text)
	if image, made := m.made[key]; made {
		return image, nil
	}
	start := time.Now()
	identity, err := m.identity()
	if err != nil {
		return Image{}, fmt.Errorf("%s must be compiled: %w", s.Name, err)
	}
	options := []string{compiled.SourceOption(s.Text)}
	var image Image
	image.Code, image.Cached, image.NotKept, err = m.Cache.Image(
		cache.Key{Source: s.Text, Headers: include.Headers, Options: options, Architecture: compute, Compiler: identity},
		func() (code []byte, err error) {
			code, image.Warnings, err = m.compile(s, compute, options)
			return code, err
		})
	if err != nil {
		return Image{}, err
	}
	image.Took = time.Since(start)
	if m.made == nil {
		m.made = map[string]Image{}
	}
	m.made[key] = image
	return image, nil
}

// Version opens the compiler and returns its version.
func (m *Maker) Version() (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.version()
}

func (m *Maker) version() (string, error) {
	if err := m.open(); err != nil {
		return "", err
	}
	return m.compiler.Version(), nil
}

func (m *Maker) identity() (string, error) {
	if m.Identity != "" || m.Cache == nil {
		return m.Identity, nil
	}
	return m.version()
}

// open opens the compiler, unless it is open.
func (m *Maker) open() error {
	if m.compiler != nil {
		return nil
	}
	c, err := m.Open()
	if err == nil {
		m.compiler = c
	}
	return err
}

func (m *Maker) compile(s Source, compute string, options []string) (code []byte, warnings string, err error) {
	if err := m.open(); err != nil {
		return nil, "", fmt.Errorf("%s must be compiled: %w", s.Name, err)
	}
	return m.compiler.Compile(s, compute, options)
}
