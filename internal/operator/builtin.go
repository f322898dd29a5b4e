package operator

import (
	"fmt"

	"millrace/internal/arrowipc"
	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// builtIns are the built-in operators, in the order in which messages name them.
var builtIns = func() (all []Source) {
	for _, d := range compiled.BuiltIn() {
		s := &builtInSource{description: d}
		switch d.Name {
		case crc32cName:
			s.kernel, s.reference = crc32cHost{}, func([]byte) referenceFunc { return crc32cReference }
		case minhashName:
			s.kernel, s.reference = minhashHost{d}, func(block []byte) referenceFunc { return newMinhashReference(d, block).append }
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
}

// Name implements Source.
func (s *builtInSource) Name() string { return s.description.Name }

// Err implements Source.
func (s *builtInSource) Err() error { return nil }

// Bind implements Source.
func (s *builtInSource) Bind(query string) (Operator, error) {
	o, err := s.description.Bind(query)
	if err != nil {
		return nil, err
	}
	block := o.Params()
	kernel, err := s.kernel.Bind(block)
	if err != nil {
		return nil, err
	}
	return &builtIn{declared: o, name: o.Name(), stride: o.Stride(), column: DeclaredColumn(o), kernel: kernel, reference: s.reference(block)}, nil
}

// builtIn is a built-in operator with its parameters. Its kernel and its reference are code, and everything else follows from its
// declaration. It implements Columnar.
type builtIn struct {
	declared  *compiled.Operator
	name      string // the declaration's, as stride is: the encoders ask for them with each record
	stride    int
	column    arrowipc.Column
	kernel    device.BoundHostKernel
	reference referenceFunc
}

// Name implements Operator.
func (b *builtIn) Name() string { return b.name }

// String implements Operator.
func (b *builtIn) String() string { return b.declared.String() }

// Params implements Operator.
func (b *builtIn) Params() []byte { return b.declared.Params() }

// Stride implements Operator.
func (b *builtIn) Stride() int { return b.stride }

// Needs implements Operator.
func (b *builtIn) Needs(s device.Shape) device.Needs { return b.kernel.Needs(s) }

// AppendJSON implements Operator.
func (b *builtIn) AppendJSON(dst, record []byte) []byte { return b.declared.AppendJSON(dst, record) }

// MostJSON implements Operator.
func (b *builtIn) MostJSON() int { return b.declared.MostJSON(0) }

// AppendReference implements Operator.
func (b *builtIn) AppendReference(dst, payload []byte) []byte { return b.reference(dst, payload) }

// ArrowColumn implements Columnar.
func (b *builtIn) ArrowColumn() arrowipc.Column { return b.column }
