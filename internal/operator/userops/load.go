package userops

import (
	"errors"
	"fmt"

	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/images"
)

// Loaded is an operator that was loaded into a GPU.
type Loaded struct {
	Name    string
	Version uint32       // version of the operator
	Path    string       // path of the loaded file
	Image   images.Image // compiled image; zero if the file isn't a source
	Refused []error      // errors of the files that Load tried before; the GPU can't run them
}

// Load loads users' operators into a GPU. It ignores built-in operators in operators. Call Load before work begins. When the GPU is closed,
// it unloads the operators. Load returns the operators that it has loaded, even if it also returns an error.
//
// Load uses the first of an operator's files that the GPU can run, in the order cubin, fatbin, PTX, source. A library with host
// code is an operator's only file. The error names the operator and describes the problem of each file. If the source is wrong,
// the error contains the compiler's error.
func Load(operators []operator.Operator, gpu device.Device) (all []Loaded, err error) {
	err = each(operators, func(o *Operator) error {
		l, err := o.source.Load(gpu)
		if err == nil {
			all = append(all, l)
		}
		return err
	})
	return all, err
}

// Load loads the operator into a GPU.
func (s *Source) Load(gpu device.Device) (Loaded, error) {
	d, ok := gpu.(device.Loader)
	if !ok {
		return Loaded{}, fmt.Errorf("operator %q: a device of kind %s can't load it", s.name, gpu.Info().Kind)
	}
	if path := s.files[compiled.HostSuffix]; path != "" {
		if err := s.check(d.LoadLibrary(path)); err != nil {
			return Loaded{}, fmt.Errorf("operator %q: %s: %w", s.name, path, err)
		}
		return s.loaded(path, images.Image{}, nil), nil
	}
	var refused []error
	for _, suffix := range compiled.GPUSuffixes {
		path := s.files[suffix]
		if path == "" {
			continue
		}
		code, err := compiled.ReadCode(path)
		if err == nil {
			err = s.check(d.LoadOperator(code))
		}
		if err == nil {
			return s.loaded(path, images.Image{}, refused), nil
		}
		err = fmt.Errorf("operator %q: %s: %w", s.name, path, err)
		if !errors.Is(err, device.ErrUnavailable) {
			return Loaded{}, err
		}
		refused = append(refused, err)
	}
	path := s.files[compiled.SourceSuffix]
	switch {
	case path != "" && s.gpus != nil:
		compute := gpu.Info().Compute
		image, err := s.Compile(compute)
		if err != nil {
			return Loaded{}, errors.Join(append(refused, err)...)
		}
		if err := s.check(d.LoadOperator(image.Code)); err != nil {
			return Loaded{}, fmt.Errorf("operator %q: %s, compiled for %s: %w", s.name, path, compute, err)
		}
		return s.loaded(path, image, refused), nil
	case len(refused) > 0:
		return Loaded{}, errors.Join(refused...)
	}
	return Loaded{}, fmt.Errorf("operator %q has no code for a GPU in %s: add its source, or what `worker operator build` makes of it", s.name, s.folder)
}

func (s *Source) loaded(path string, image images.Image, refused []error) Loaded {
	return Loaded{Name: s.name, Version: s.description.Version, Path: path, Image: image, Refused: refused}
}

// check checks that the loaded code is the operator that the worker was configured with. If it is another operator, check unloads
// the code. err is the error of loading the code.
func (s *Source) check(m device.Module, err error) error {
	if err != nil {
		return err
	}
	description, err := compiled.Decode(m.Description())
	if err == nil && m.Name() != s.name {
		err = fmt.Errorf("it has the operator %q", m.Name())
	}
	if err == nil {
		err = s.describe(description, "the loaded code")
	}
	if err != nil {
		return errors.Join(err, m.Close())
	}
	return nil
}
