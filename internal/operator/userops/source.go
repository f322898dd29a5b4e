package userops

import (
	"fmt"
	"path/filepath"
	"sync"

	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/images"
)

// GPUs are the GPUs that the worker uses, and a compiler for them.
type GPUs interface {
	// Computes returns the compute capabilities of the GPUs, such as "9.0", at least one. The error says why there is no GPU.
	Computes() ([]string, error)

	// Image compiles a source for a compute capability, or returns what was compiled before.
	Image(s images.Source, compute string) (images.Image, error)
}

// Source is an operator that was found. It implements operator.Source.
type Source struct {
	name, folder string
	files        map[string]string // path of each file, by its suffix
	text         []byte            // of the source file; nil if there is none
	gpus         GPUs              // nil if the worker uses the CPU
	wrong        error             // see Err

	description *compiled.Description // nil until it is known: a source has none before it is compiled
	described   string                // the file that has it

	open    sync.Once
	library *cpulib.Library
	err     error // why the library can't be opened
}

// Name implements operator.Source.
func (s *Source) Name() string { return s.name }

// Err implements operator.Source. It says what is wrong with the operator's files.
func (s *Source) Err() error { return s.wrong }

// Folder returns the folder in which the operator was found.
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

// Path returns the path of the file with a suffix, or "" if there is none.
func (s *Source) Path(suffix string) string { return s.files[suffix] }

// first returns the path of one of the files, for messages.
func (s *Source) first() string { return filepath.Join(s.folder, s.Files()[0]) }

// Describe returns what the operator says about itself. If the operator is only a source, Describe compiles it for the first GPU. The
// error is the compiler's if the source is wrong. Otherwise it says what is missing.
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

// Compile compiles the source for a compute capability. The error is the compiler's if the source is wrong.
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

// Library opens the library for the CPU. The error says why there is none.
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
