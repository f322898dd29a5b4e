// Package own finds operators of your own in folders, and makes them usable like the built-in ones
// (docs/adr/0040-operators-of-your-own.md).
//
// cmd/worker finds them with Find while it reads its configuration. For those that it uses, it opens the libraries for the CPU with Kernels,
// or loads the code for a GPU with Load. Start reading with Find, then Source and Operator.
package own

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"millrace/internal/operator/compiled"
)

// kind is a kind of file that an operator can consist of.
type kind string

// The kinds of files, by their suffixes.
const (
	sourceFile kind = ".cu"     // compiled when the worker starts
	cubinFile  kind = ".cubin"  // for GPUs of one compute capability
	fatbinFile kind = ".fatbin" // for several
	ptxFile    kind = ".ptx"    // compiled by the driver
	cpuFile    kind = ".cpu.so" // a library for the CPU
	hostFile   kind = ".so"     // a library with host code that launches kernels
)

// compiledKinds lists the kinds of files that have a description. Those for GPUs are in the order in which the worker tries them.
var compiledKinds = []kind{cubinFile, fatbinFile, ptxFile, cpuFile, hostFile}

// cut returns the name of the operator to which a file belongs, and what kind of file it is.
func cut(file string) (name string, k kind, ok bool) {
	for _, k := range append([]kind{sourceFile}, compiledKinds...) {
		if name, ok := strings.CutSuffix(file, string(k)); ok && name != "" && name[0] != '.' {
			return name, k, true
		}
	}
	return "", "", false
}

// Find returns the operators in the folders, in order of their names. It reads descriptions and loads no code. Files of other kinds are
// ignored. gpus are the GPUs that the worker uses; nil for none.
//
// The error joins the folders that can't be read. What is wrong with the files of an operator is in its Err: a file that isn't an operator,
// or was compiled from another version of the source beside it, and a name that another operator has. Such an operator can't be used, and
// the others can.
func Find(folders []string, gpus GPUs) ([]*Source, error) {
	var errs []error
	found := map[string]*Source{}
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, s := range sources(folder, entries, gpus) {
			if other := found[s.name]; other != nil {
				other.wrong = fmt.Errorf("operator %q is in %s and in %s: remove one of them", s.name, other.Folder(), s.Folder())
				continue
			}
			s.wrong = s.read()
			found[s.name] = s
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Source) int { return strings.Compare(a.name, b.name) }), errors.Join(errs...)
}

// sources returns the operators of a folder.
func sources(folder string, entries []fs.DirEntry, gpus GPUs) []*Source {
	byName := map[string]*Source{}
	for _, e := range entries {
		name, k, ok := cut(e.Name())
		if !ok {
			continue
		}
		s := byName[name]
		if s == nil {
			s = &Source{name: name, folder: folder, files: map[kind]string{}, gpus: gpus}
			byName[name] = s
		}
		s.files[k] = filepath.Join(folder, e.Name())
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *Source) int { return strings.Compare(a.name, b.name) })
}

// read reads the source and the descriptions of the compiled files, and checks that they belong together.
func (s *Source) read() error {
	if err := compiled.CheckName(s.name); err != nil {
		return fmt.Errorf("%s: %w", s.path(), err)
	}
	if path := s.files[hostFile]; path != "" && len(s.files) > 1 {
		return fmt.Errorf("operator %q: %s has everything, and %s has other files of that name: remove those, or that", s.name, path, s.folder)
	}
	if path := s.files[sourceFile]; path != "" {
		text, err := readSource(path)
		if err != nil {
			return err
		}
		s.text = text
	}
	for _, k := range compiledKinds {
		if path := s.files[k]; path != "" {
			if err := s.readCompiled(path, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// mostSource is the maximum size of a source file in bytes.
const mostSource = 1 << 20

func readSource(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > mostSource {
		return nil, fmt.Errorf("%s: not a source file of at most %d KiB", path, mostSource>>10)
	}
	return os.ReadFile(path)
}

// readCompiled reads the description of a compiled file and compares it with what is known.
func (s *Source) readCompiled(path string, k kind) error {
	d, err := compiled.ReadFile(path)
	if err != nil {
		return err
	}
	if d.Name != s.name {
		return fmt.Errorf("%s has the operator %q: name the file %s%s", path, d.Name, d.Name, k)
	}
	if (d.Form == compiled.Library) != (k == hostFile) {
		return fmt.Errorf("%s has the operator %q, whose code is %s: that is in files whose names end with %s, and only there", path, d.Name, d.Form, hostFile)
	}
	if s.text != nil && d.Source != [sha256.Size]byte{} && d.Source != sha256.Sum256(s.text) {
		source := s.files[sourceFile]
		return fmt.Errorf("%s was compiled from another version of %s: run `worker operator build %s`, or remove it", path, source, source)
	}
	return s.describe(d, path)
}

// describe records the description of a compiled file. It returns an error if another file's differs.
func (s *Source) describe(d *compiled.Description, path string) error {
	d.Folder = s.folder // of the files that are tables
	if s.description == nil {
		s.description, s.described = d, path
		return nil
	}
	a, b := *s.description, *d
	a.Checked, b.Checked = false, false
	if a.Source == [sha256.Size]byte{} || b.Source == [sha256.Size]byte{} {
		a.Source, b.Source = [sha256.Size]byte{}, [sha256.Size]byte{}
	}
	if !reflect.DeepEqual(a, b) {
		return fmt.Errorf("%s and %s are different versions of the operator %q: compile both from one source", s.described, path, s.name)
	}
	if s.description.Source == [sha256.Size]byte{} {
		s.description, s.described = d, path // which knows its source, so the next file is compared with it
	}
	return nil
}
