// Package userops finds users' operators in folders and gives them the interfaces of the built-in operators
// (docs/adr/0040-operators-of-your-own.md).
//
// cmd/worker calls Find while it reads its configuration. Then it opens the libraries of the configured operators for the CPU with
// Kernels, or loads their code into a GPU with Load. Start reading with Find, then Source and Operator.
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
	"sync"

	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/images"
)

// Find returns the operators in the folders, sorted by name. It reads descriptions, but loads no code. It ignores files of other kinds.
// gpus are the GPUs that the worker uses, or nil without GPUs.
//
// The error joins the errors of folders that can't be read. Err of a Source returns the error in its files, which doesn't affect other
// operators. Examples are a file that isn't an operator, a file compiled from another version of its source, and an operator's name that
// another folder has too.
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
				other.wrong = fmt.Errorf("operator %q is in %s and in %s: remove one of them", s.name, other.folder, s.folder)
				continue
			}
			s.wrong = s.read()
			found[name] = s
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Source) int { return strings.Compare(a.name, b.name) }), errors.Join(errs...)
}

// Open returns the operator with only the given files. Its tables are in the folder of the first file. The error is the same as Err.
func Open(gpus GPUs, paths ...string) (*Source, error) {
	s := newSource(paths[0], gpus)
	for _, path := range paths {
		_, suffix := compiled.CutSuffix(path)
		s.files[suffix] = path
	}
	s.wrong = s.read()
	return s, s.wrong
}

// newSource returns an operator with the name and folder of a file, but without files.
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

// GPUs are the GPUs that the worker uses, and a compiler for them.
type GPUs interface {
	// Computes returns the GPUs' compute capabilities, such as "9.0". It returns at least one, or an error if there is no GPU.
	Computes() ([]string, error)

	// Image compiles a source for a compute capability, or returns an earlier image.
	Image(s images.Source, compute string) (images.Image, error)
}

// Source is an operator that was found. It implements operator.Source.
type Source struct {
	name, folder string
	files        map[string]string // path of each file, by its suffix
	text         []byte            // contents of the source file; may be nil
	gpus         GPUs              // nil if the worker uses the CPU
	wrong        error             // see Err

	description *compiled.Description // nil if unknown, for example for a source before its compilation
	described   string                // file that contains description

	open    sync.Once
	library *cpulib.Library
	err     error // error of opening the library
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

// readCompiled reads the description of a compiled file and compares it with the other files of the operator.
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

// describe stores the description of a compiled file. It returns an error if the description differs from an earlier file's description.
func (s *Source) describe(d *compiled.Description, path string) error {
	d.Folder = s.folder // folder of the files of tables
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
		s.description, s.described = d, path // d has the hash of its source, for comparisons with later files
	}
	return nil
}

// Name implements operator.Source.
func (s *Source) Name() string { return s.name }

// Err implements operator.Source. It returns the error about the operator's files.
func (s *Source) Err() error { return s.wrong }

// Folder returns the folder of the operator's files.
func (s *Source) Folder() string { return s.folder }

// Files returns the names of the operator's files.
func (s *Source) Files() (names []string) {
	for _, suffix := range compiled.Suffixes {
		if path := s.files[suffix]; path != "" {
			names = append(names, filepath.Base(path))
		}
	}
	return names
}

// Path returns the path of the file with the given suffix, or "" if there is no such file.
func (s *Source) Path(suffix string) string { return s.files[suffix] }

// first returns the path of one of the files, for messages.
func (s *Source) first() string { return filepath.Join(s.folder, s.Files()[0]) }

// Describe returns the operator's description. If the operator has only a source, Describe compiles it for the first GPU. If the source is
// wrong, it returns the compiler's error. Otherwise, the error names the missing file or device.
func (s *Source) Describe() (*compiled.Description, error) {
	if s.wrong != nil {
		return nil, s.wrong
	}
	if s.description != nil {
		return s.description, nil
	}
	source := s.files[compiled.SourceSuffix]
	build := fmt.Sprintf("run `worker operator build %s`", source)
	if s.gpus == nil {
		return nil, fmt.Errorf("operator %q: %s has no library for the CPU beside it: %s", s.name, source, build)
	}
	computes, err := s.gpus.Computes()
	if err != nil {
		return nil, fmt.Errorf("operator %q: %s has no library for the CPU beside it (%s), and no GPU can run it: %w", s.name, source, build, err)
	}
	image, err := s.Compile(computes[0])
	if err != nil {
		return nil, err
	}
	d, err := compiled.ReadCompiled(source, image.Code)
	if err != nil {
		return nil, err
	}
	return d, s.describe(d, source)
}

// Compile compiles the source for a compute capability. If the source is wrong, it returns the compiler's error.
func (s *Source) Compile(compute string) (images.Image, error) {
	return s.gpus.Image(images.Source{Name: filepath.Base(s.files[compiled.SourceSuffix]), Text: s.text}, compute)
}

// Bind implements operator.Source.
func (s *Source) Bind(query string) (operator.Operator, error) {
	d, err := s.Describe()
	if err != nil {
		return nil, err
	}
	o, err := d.Bind(query)
	if err != nil {
		return nil, err
	}
	one := &Operator{source: s, Operator: o}
	if o.HasStrings() {
		return &variable{one}, nil
	}
	return one, nil
}

// Library opens the library for the CPU, once. It returns an error if there is no such library.
func (s *Source) Library() (*cpulib.Library, error) {
	s.open.Do(func() {
		path := s.files[compiled.CPUSuffix]
		if library := s.files[compiled.HostSuffix]; library != "" {
			s.err = fmt.Errorf("operator %q runs only on GPUs: %s has host code that launches kernels", s.name, library)
			return
		}
		if path == "" {
			s.err = fmt.Errorf("operator %q has no library for the CPU in %s: run `worker operator build` with its source", s.name, s.folder)
			return
		}
		s.library, s.err = cpulib.Open(path)
	})
	return s.library, s.err
}
