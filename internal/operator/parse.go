package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Source is an operator without its parameters.
type Source interface {
	// Name returns the operator's name.
	Name() string

	// Err returns why the operator can't be used, whatever its parameters are, or nil. Bind fails with the same error.
	Err() error

	// Bind returns the operator with parameters from a query such as "bits=5&seed=1". The others have their defaults. The error names
	// the operator, every problem, and the permitted values.
	Bind(query string) (Operator, error)
}

// Parse parses one operator: its name, optionally followed by a question mark and parameters, as in
// "minhash?k=24&hashes=128&seed=1". Parameters may be in any order, each at most once; the others have their defaults.
// The name is that of a built-in operator, or of one of sources, which have other names.
// The error names every problem in the spec and the permitted values.
func Parse(spec string, sources ...Source) (Operator, error) {
	name, query, hasQuery := strings.Cut(spec, "?")
	for _, s := range slices.Concat(builtIns, sources) {
		switch {
		case s.Name() != name:
			continue
		case hasQuery && query == "":
			return nil, fmt.Errorf("operator %q: no parameter follows the question mark: remove it", name)
		}
		return s.Bind(query)
	}
	return nil, fmt.Errorf("unknown operator %q: known are %s", name, sourceNames(sources))
}

// ParseList parses operators separated by commas and keeps their order. It ignores spaces around each. An empty list
// and a repeated name are errors. The error joins all problems in the list.
func ParseList(list string, sources ...Source) ([]Operator, error) {
	if strings.TrimSpace(list) == "" {
		return nil, fmt.Errorf("no operator given: name at least one of %s", sourceNames(sources))
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

// sourceNames returns the names of the built-in operators and of sources, for messages.
func sourceNames(sources []Source) string {
	var names []string
	for _, s := range slices.Concat(builtIns, sources) {
		names = append(names, s.Name())
	}
	return strings.Join(names, ", ")
}
