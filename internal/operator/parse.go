package operator

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// kind is one of the operators that Parse knows.
type kind struct {
	name       string
	parameters []parameter
	build      func(values []uint64) Operator // values[i] belongs to parameters[i] and is within its range
}

// parameter is an unsigned number from low to high.
type parameter struct {
	name      string
	low, high uint64
	preset    uint64 // default value
}

var kinds = []kind{
	{name: crc32cName, build: func([]uint64) Operator { return crc32c{} }},
	{name: minhashName, parameters: minhashParameters, build: func(values []uint64) Operator {
		return newMinhash(minhashConfig{k: int(values[0]), hashes: int(values[1]), seed: values[2]})
	}},
}

// Source is an operator that isn't built in, without its parameters.
type Source interface {
	// Name returns the operator's name. It isn't that of a built-in operator.
	Name() string

	// Bind returns the operator with parameters from a query such as "bits=5&seed=1". The others have their defaults. The error names
	// the operator, every problem, and the permitted values.
	Bind(query string) (Operator, error)
}

// Parse parses one operator: its name, optionally followed by a question mark and parameters, as in
// "minhash?k=24&hashes=128&seed=1". Parameters may be in any order, each at most once; the others have their defaults.
// The name is that of a built-in operator, or of one of sources.
// The error names every problem in the spec and the permitted values.
func Parse(spec string, sources ...Source) (Operator, error) {
	name, query, hasQuery := strings.Cut(spec, "?")
	for _, k := range kinds {
		if k.name != name {
			continue
		}
		if !hasQuery {
			return k.build(k.presets()), nil
		}
		values, err := k.values(query)
		if err != nil {
			return nil, fmt.Errorf("operator %q: %w", name, err)
		}
		return k.build(values), nil
	}
	for _, s := range sources {
		if s.Name() == name {
			return s.Bind(query)
		}
	}
	return nil, fmt.Errorf("unknown operator %q: known are %s", name, kindNames(sources))
}

// ParseList parses operators separated by commas and keeps their order. It ignores spaces around each. An empty list
// and a repeated name are errors. The error joins all problems in the list.
func ParseList(list string, sources ...Source) ([]Operator, error) {
	if strings.TrimSpace(list) == "" {
		return nil, fmt.Errorf("no operator given: name at least one of %s", kindNames(sources))
	}
	var (
		ops  []Operator
		errs []error
		seen = make(map[string]bool)
	)
	for spec := range strings.SplitSeq(list, ",") {
		op, err := Parse(strings.TrimSpace(spec), sources...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if seen[op.Name()] {
			errs = append(errs, fmt.Errorf("operator %q is given twice: a result has one value for each name", op.Name()))
			continue
		}
		seen[op.Name()] = true
		ops = append(ops, op)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return ops, nil
}

func (k kind) presets() []uint64 {
	values := make([]uint64, len(k.parameters))
	for i, p := range k.parameters {
		values[i] = p.preset
	}
	return values
}

// values parses "k=24&hashes=128" and uses the defaults for the other parameters.
func (k kind) values(query string) ([]uint64, error) {
	if len(k.parameters) == 0 {
		return nil, fmt.Errorf("it takes no parameters, got %q", query)
	}
	var (
		values = k.presets()
		given  = make([]bool, len(values))
		errs   []error
	)
	for pair := range strings.SplitSeq(query, "&") {
		name, text, _ := strings.Cut(pair, "=")
		i := k.index(name)
		if i < 0 {
			errs = append(errs, fmt.Errorf("unknown parameter %q: known are %s", name, k.parameterNames()))
			continue
		}
		if given[i] {
			errs = append(errs, fmt.Errorf("parameter %q is given twice", name))
			continue
		}
		given[i] = true
		value, err := k.parameters[i].parse(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		values[i] = value
	}
	return values, errors.Join(errs...)
}

func (p parameter) parse(text string) (uint64, error) {
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil || value < p.low || value > p.high {
		return 0, fmt.Errorf("parameter %q is %q: give a whole number from %d to %d", p.name, text, p.low, p.high)
	}
	return value, nil
}

func (k kind) index(parameter string) int {
	for i, p := range k.parameters {
		if p.name == parameter {
			return i
		}
	}
	return -1
}

func (k kind) parameterNames() string {
	names := make([]string, len(k.parameters))
	for i, p := range k.parameters {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

func kindNames(sources []Source) string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	for _, s := range sources {
		names = append(names, s.Name())
	}
	return strings.Join(names, ", ")
}
