// Package own finds operators of one's own in folders, and makes them usable like the built-in ones
// (docs/adr/0040-operators-of-your-own.md).
//
// The configuration finds them with Find, and cmd/worker opens the libraries of those that it uses with Kernels. They run on the
// CPU only. Start reading with Find, then Operator.
package own

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
)

// Suffixes of an operator's files.
const (
	sourceSuffix = ".cu"
	cpuSuffix    = ".cpu.so"
)

// Source is an operator that was found. It implements operator.Source.
type Source struct {
	name        string
	path        string                // of the library, or of the source file if there is no library
	description *compiled.Description // nil if there is no library

	open    sync.Once
	library *cpulib.Library
	err     error // why the library can't be opened
}

// Find returns the operators in the folders, in order of their names. It reads descriptions and loads no code. Files of other kinds are
// ignored. The error joins all problems: a folder that can't be read, a library that isn't an operator or is older than the source
// file beside it, and a name that two operators have.
func Find(folders []string) ([]*Source, error) {
	var (
		errs  []error
		found = map[string]*Source{}
	)
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, s := range sources(folder, entries) {
			if err := s.read(); err != nil {
				errs = append(errs, err)
				continue
			}
			if other := found[s.name]; other != nil {
				errs = append(errs, fmt.Errorf("operator %q is in %s and in %s: remove one of them", s.name, other.path, s.path))
				continue
			}
			found[s.name] = s
		}
	}
	all := make([]*Source, 0, len(found))
	for _, s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Source) int { return strings.Compare(a.name, b.name) })
	return all, errors.Join(errs...)
}

// sources returns the operators of a folder: one for each library, and one for each source file without a library.
func sources(folder string, entries []fs.DirEntry) (all []*Source) {
	libraries := map[string]bool{}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), cpuSuffix); ok && name != "" && name[0] != '.' {
			libraries[name] = true
			all = append(all, &Source{name: name, path: filepath.Join(folder, e.Name())})
		}
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), sourceSuffix); ok && name != "" && name[0] != '.' && !libraries[name] {
			all = append(all, &Source{name: name, path: filepath.Join(folder, e.Name())})
		}
	}
	return all
}

// read reads the description of the library, if there is one.
func (s *Source) read() error {
	for _, d := range compiled.BuiltIn() {
		if d.Name == s.name {
			return fmt.Errorf("%s: %q is the name of a built-in operator: choose another", s.path, s.name)
		}
	}
	if strings.HasSuffix(s.path, sourceSuffix) {
		return compiled.CheckName(s.name)
	}
	d, err := compiled.ReadFile(s.path)
	if err != nil {
		return err
	}
	if d.Name != s.name {
		return fmt.Errorf("%s has the operator %q: name the file %s%s", s.path, d.Name, d.Name, cpuSuffix)
	}
	s.description = d
	return s.compareSource(strings.TrimSuffix(s.path, cpuSuffix) + sourceSuffix)
}

// compareSource returns an error if the source file beside the library isn't the one that it was compiled from.
func (s *Source) compareSource(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || s.description.Source == [sha256.Size]byte{} {
		return nil
	}
	if err == nil && sha256.Sum256(text) != s.description.Source {
		err = fmt.Errorf("%s was compiled from another version of %s: run `worker operator build %s`", s.path, path, path)
	}
	return err
}

// Name implements operator.Source.
func (s *Source) Name() string { return s.name }

// Bind implements operator.Source.
func (s *Source) Bind(query string) (operator.Operator, error) {
	if s.description == nil {
		return nil, fmt.Errorf("operator %q: %s has no library for the CPU beside it: run `worker operator build %s`", s.name, s.path, s.path)
	}
	o, err := s.description.Bind(query)
	if err != nil {
		return nil, err
	}
	one := &Operator{source: s, bound: o}
	if o.HasStrings() {
		return &variable{one}, nil
	}
	return one, nil
}

// load opens the library once.
func (s *Source) load() (*cpulib.Library, error) {
	s.open.Do(func() { s.library, s.err = cpulib.Open(s.path) })
	return s.library, s.err
}

// Operator is an operator of one's own with its parameters. It implements operator.Refuser.
type Operator struct {
	source *Source
	bound  *compiled.Operator
}

// Name implements operator.Operator.
func (o *Operator) Name() string { return o.source.name }

// String implements operator.Operator.
func (o *Operator) String() string { return o.bound.String() }

// Params implements operator.Operator.
func (o *Operator) Params() []byte { return o.bound.Params() }

// Stride implements operator.Operator.
func (o *Operator) Stride() int { return o.bound.Stride() }

// Needs implements operator.Operator.
func (o *Operator) Needs(s device.Shape) device.Needs {
	return device.Needs{Result: o.bound.Layout(s.Rows, s.Bytes).End}
}

// AppendJSON implements operator.Operator.
func (o *Operator) AppendJSON(dst, record []byte) []byte { return o.bound.AppendJSON(dst, record) }

// MostJSON implements operator.Operator. It doesn't count the bytes of byte strings, which take two bytes each.
func (o *Operator) MostJSON() int {
	most, _ := o.bound.MostStrings()
	return o.bound.MostJSON(0) - 2*most
}

// Refusal implements operator.Refuser.
func (o *Operator) Refusal(results []byte, rows, row int) string {
	return o.bound.Refusal(results[o.bound.Layout(rows, 0).Status+row])
}

// Overlong implements operator.Faulty.
func (o *Operator) Overlong(results []byte, offsets []uint32, row int) string {
	return o.bound.Overlong(offsets, results, row)
}

// Fault implements operator.Faulty.
func (o *Operator) Fault(reason string) string {
	switch {
	case compiled.IsUndeclared(reason):
		return operator.FaultInvalidResult
	case compiled.IsOutOfBounds(reason):
		return operator.FaultOutOfBounds
	}
	return ""
}

// AppendReference implements operator.Operator with the library itself, on a batch of the payload alone. The record of a payload that
// the operator refuses is zeros. A record that the description doesn't permit is what the code left, without byte strings that exceed
// their bounds. AppendReference panics if the library can't be opened, which Kernels reports before.
func (o *Operator) AppendReference(dst, payload []byte) []byte {
	library, err := o.source.load()
	if err != nil {
		panic(err)
	}
	kernel, err := library.Bind(o.bound.Params())
	if err != nil {
		panic(err) // Bind has checked the parameters
	}
	offsets := []uint32{0, uint32(len(payload))}
	result := make([]byte, o.Needs(device.Shape{Rows: 1, Bytes: len(payload)}).Result)
	one := func(n int, fn func(i int)) {
		for i := range n {
			fn(i)
		}
	}
	if err := kernel.(*cpulib.Kernel).RunUnchecked(payload, offsets, nil, result, one); err != nil {
		clear(result)
	}
	return o.bound.AppendValue(dst, offsets, result, 0)
}

// Kernels opens the libraries of the operators of one's own among operators, and returns their kernels for the host device.
func Kernels(operators []operator.Operator) (kernels []device.HostKernel, err error) {
	for _, op := range operators {
		o := of(op)
		if o == nil {
			continue
		}
		library, err := o.source.load()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.source.path, err)
		}
		kernels = append(kernels, unchecked{library})
	}
	return kernels, nil
}

// unchecked is a library without the check of results that its own Run makes. So the host device behaves as a GPU does, where nothing
// checks what a kernel writes: the consumer refuses a record with an undeclared result, and the device works on.
type unchecked struct{ *cpulib.Library }

// Bind implements device.HostKernel.
func (u unchecked) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := u.Library.Bind(params)
	if err != nil {
		return nil, err
	}
	return uncheckedKernel{bound.(*cpulib.Kernel)}, nil
}

type uncheckedKernel struct{ *cpulib.Kernel }

// Run implements device.BoundHostKernel.
func (k uncheckedKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	return k.RunUnchecked(rows, offsets, scratch, result, parallel)
}

// variable is an operator whose results have byte strings. It implements operator.Variable.
type variable struct{ *Operator }

// MostStrings implements operator.Variable.
func (v *variable) MostStrings() (most, perByte int) { return v.bound.MostStrings() }

// AppendStrings implements operator.Variable.
func (v *variable) AppendStrings(dst, results []byte, offsets []uint32, row int) []byte {
	return v.bound.AppendStrings(dst, offsets, results, row)
}

// of returns the operator of one's own, or nil if op is built in.
func of(op operator.Operator) *Operator {
	switch o := op.(type) {
	case *Operator:
		return o
	case *variable:
		return o.Operator
	}
	return nil
}

// Names returns the names of the operators of one's own among operators.
func Names(operators []operator.Operator) (names []string) {
	for _, op := range operators {
		if o := of(op); o != nil {
			names = append(names, o.Name())
		}
	}
	return names
}
