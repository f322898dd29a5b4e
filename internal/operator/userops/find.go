// Package userops finds operators of your own in folders, and makes them usable like the built-in ones
// (docs/adr/0040-operators-of-your-own.md).
//
// cmd/worker finds them with Find while it reads its configuration. For those that it uses, it opens the libraries for the CPU with Kernels,
// or loads the code for a GPU with Load. Start reading with Find, then Source and Operator.
package userops

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
		for name, s := range sources(folder, entries, gpus) {
			if other := found[name]; other != nil {
				other.wrong = fmt.Errorf("operator %q is in %s and in %s: remove one of them", s.name, other.Folder(), s.Folder())
				continue
			}
			s.wrong = s.read()
			found[name] = s
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Source) int { return strings.Compare(a.name, b.name) }), errors.Join(errs...)
}

// Open returns the operator that consists of these files alone. Tables are in the folder of the first one. The error is that of Err.
func Open(gpus GPUs, paths ...string) (*Source, error) {
	s := newSource(paths[0], gpus)
	for _, path := range paths {
		_, suffix := compiled.CutSuffix(path)
		s.files[suffix] = path
	}
	s.wrong = s.read()
	return s, s.wrong
}

// newSource returns the operator of a file, without files.
func newSource(path string, gpus GPUs) *Source {
	stem, _ := compiled.CutSuffix(path)
	return &Source{name: filepath.Base(stem), folder: filepath.Dir(path), files: map[string]string{}, gpus: gpus}
}

// sources returns the operators of a folder, by name.
func sources(folder string, entries []fs.DirEntry, gpus GPUs) map[string]*Source {
	byName := map[string]*Source{}
	for _, e := range entries {
		name, suffix := compiled.CutSuffix(e.Name())
		if suffix == "" || name == "" || name[0] == '.' {
			continue
		}
		if byName[name] == nil {
			byName[name] = newSource(filepath.Join(folder, e.Name()), gpus)
		}
		byName[name].files[suffix] = filepath.Join(folder, e.Name())
	}
	return byName
}

// read reads the source and the descriptions of the compiled files, and checks that they belong together.
func (s *Source) read() error {
	if err := compiled.CheckName(s.name); err != nil {
		return fmt.Errorf("%s: %w", s.first(), err)
	}
	if path := s.files[compiled.HostSuffix]; path != "" && len(s.files) > 1 {
		return fmt.Errorf("operator %q: %s has everything, and %s has other files of that name: remove those, or that", s.name, path, s.folder)
	}
	if path := s.files[compiled.SourceSuffix]; path != "" {
		var err error
		if _, s.text, err = compiled.ReadSource(path); err != nil {
			return err
		}
	}
	for _, suffix := range compiled.Suffixes {
		if path := s.files[suffix]; path != "" && suffix != compiled.SourceSuffix {
			if err := s.readCompiled(path, suffix); err != nil {
				return err
			}
		}
	}
	return nil
}

// readCompiled reads the description of a compiled file and compares it with what is known.
func (s *Source) readCompiled(path, suffix string) error {
	d, err := compiled.ReadFile(path)
	if err != nil {
		return err
	}
	if d.Name != s.name {
		return fmt.Errorf("%s has the operator %q: name the file %s%s", path, d.Name, d.Name, suffix)
	}
	if (d.Form == compiled.Library) != (suffix == compiled.HostSuffix) {
		return fmt.Errorf("%s has the operator %q, whose code is %s: that is in files whose names end with %s, and only there", path, d.Name, d.Form, compiled.HostSuffix)
	}
	if s.text != nil && d.Source != [sha256.Size]byte{} && d.Source != sha256.Sum256(s.text) {
		source := s.files[compiled.SourceSuffix]
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
