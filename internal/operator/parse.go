package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"millrace/internal/arrowipc"
	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// Source is an operator without its parameters.
type Source interface {
	// Name returns the operator's name.
	Name() string

	// Err returns an error if the operator can't be used with any parameters, or else nil. Bind returns the same error.
	Err() error

	// Bind returns the operator with parameters from a query such as "bits=5&seed=1". Missing parameters have their defaults. The
	// error contains the operator's name, every problem, and the permitted values.
	Bind(query string) (Operator, error)
}

// Parse parses one operator: its name, optionally followed by a question mark and parameters, as in "minhash?k=24&hashes=128&seed=42".
// Parameters may be in any order, each at most once. Missing parameters have their defaults. The operator is a built-in operator or one of
// sources. The names of sources must differ from built-in names. The error contains every problem of the spec and the permitted values.
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

// ParseList parses operators separated by commas and keeps their order. It ignores spaces around operators. The list must not be
// empty or repeat a name. The error joins all problems.
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

// builtIns are the built-in operators, in the order of their names in messages.
var builtIns = func() (all []Source) {
	for _, d := range compiled.BuiltIn() {
		s := &builtInSource{description: d}
		switch d.Name {
		case crc32cName:
			s.kernel, s.reference = crc32cHost{}, func([]byte) referenceFunc { return crc32cReference }
		case minhashName:
			s.kernel, s.reference = minhashHost{d}, func(block []byte) referenceFunc { return newMinhashReference(d, block).append }
		case qualityName:
			s.kernel, s.reference = qualityHost{d}, qualityReference
			s.refusal = qualityRefusal
		case neardupName:
			s.kernel, s.reference = neardupHost{d}, func(block []byte) referenceFunc { return newNeardupReference(d, block).append }
			s.validate = func(block []byte) error { _, err := neardupParametersOf(d, block); return err }
			s.stateful = func(kernel *builtIn) Operator { return newNeardup(kernel) }
		default:
			panic(fmt.Sprintf("operator: %s is declared and has no code", d.Name))
		}
		all = append(all, s)
	}
	return all
}()

// referenceFunc appends the record of one payload; see Operator.AppendReference.
type referenceFunc func(dst, payload []byte) []byte

// builtInSource is a built-in operator without its parameters. It implements Source.
type builtInSource struct {
	description *compiled.Description
	kernel      device.HostKernel
	reference   func(block []byte) referenceFunc // returns the reference for a valid parameter block
	refusal     func(payload []byte) string      // see ReferenceRefuser; nil if the operator declares no reason
	validate    func(block []byte) error         // checks what the description can't declare; nil if there is nothing
	stateful    func(kernel *builtIn) Operator   // returns the Stateful with this kernel; nil if the operator has no state
}

// Name implements Source.
func (b *builtInSource) Name() string { return b.description.Name }

// Err implements Source.
func (b *builtInSource) Err() error { return nil }

// Bind implements Source.
func (b *builtInSource) Bind(query string) (Operator, error) {
	o, err := b.description.Bind(query)
	if err != nil {
		return nil, err
	}
	block := o.Params()
	if b.validate != nil {
		if err := b.validate(block); err != nil {
			return nil, fmt.Errorf("operator %q: %w", b.Name(), err)
		}
	}
	bound := &builtIn{o, DeclaredColumn(o), b.reference(block)}
	if b.refusal != nil {
		return refuser{bound, b.refusal}, nil
	}
	if b.stateful != nil {
		return b.stateful(bound), nil
	}
	return bound, nil
}

// builtIn is a built-in operator with its parameters. It implements Columnar, mostly with methods of its declaration.
type builtIn struct {
	*compiled.Operator
	column    arrowipc.Column
	reference referenceFunc
}

// MaxJSON implements Operator.
func (b *builtIn) MaxJSON() int { return b.Operator.MaxJSON(0) }

// AppendReference implements Operator.
func (b *builtIn) AppendReference(dst, payload []byte) []byte { return b.reference(dst, payload) }

// ArrowColumn implements Columnar.
func (b *builtIn) ArrowColumn() arrowipc.Column { return b.column }

// Declaration implements Declared.
func (b *builtIn) Declaration() *compiled.Operator { return b.Operator }

// refuser is a built-in operator that declares reasons. It implements ReferenceRefuser and Columnar.
type refuser struct {
	*builtIn
	refusal func(payload []byte) string
}

// Refusal implements Refuser.
func (r refuser) Refusal(results []byte, rows, row int) string {
	return r.Operator.Refusal(r.Status(results, rows, row))
}

// ReferenceRefusal implements ReferenceRefuser.
func (r refuser) ReferenceRefusal(payload []byte) string { return r.refusal(payload) }
