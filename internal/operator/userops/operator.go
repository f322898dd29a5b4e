package userops

import (
	"sync"

	"millrace/internal/arrowipc"
	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
)

// Operator is a user's operator with its parameters. It implements operator.Faulty and operator.Columnar, partly with methods of the
// embedded operator.
type Operator struct {
	*compiled.Operator
	source *Source

	bind      sync.Once
	reference *cpulib.Kernel // set by bind
}

// MaxJSON implements operator.Operator. It doesn't count the bytes of byte strings, each of which needs at most two bytes in JSON.
func (o *Operator) MaxJSON() int {
	limit, _ := o.MaxStrings()
	return o.Operator.MaxJSON(0) - 2*limit
}

// Refusal implements operator.Refuser.
func (o *Operator) Refusal(results []byte, rows, row int) string {
	return o.Operator.Refusal(o.Status(results, rows, row))
}

// Overlong implements operator.Faulty.
func (o *Operator) Overlong(results []byte, offsets []uint32, row int) string {
	return o.Operator.Overlong(offsets, results, row)
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

// AppendReference implements operator.Operator. It runs the library on a batch of only this payload. If the operator refuses the
// payload, the record is zeros. If the description doesn't permit the code's output, AppendReference appends it without byte strings
// that exceed their limits. It panics if the library can't be opened. Kernels reports this error earlier.
func (o *Operator) AppendReference(dst, payload []byte) []byte {
	kernel := o.kernel()
	offsets := []uint32{0, uint32(len(payload))}
	needs := kernel.Needs(device.Shape{Rows: 1, Bytes: len(payload)})
	scratch, result := make([]byte, needs.Scratch), make([]byte, needs.Result)
	one := func(n int, fn func(i int)) {
		for i := range n {
			fn(i)
		}
	}
	if err := kernel.Run(payload, offsets, scratch, result, one); err != nil {
		clear(result)
	}
	return o.AppendValue(dst, offsets, result, 0)
}

// kernel returns the library's kernel with the operator's parameters. It panics if the library can't be opened.
func (o *Operator) kernel() *cpulib.Kernel {
	o.bind.Do(func() {
		library, err := o.source.Library()
		if err != nil {
			panic(err)
		}
		bound, err := library.Bind(o.Params())
		if err != nil {
			panic(err) // Bind has checked the parameters
		}
		o.reference = bound.(*cpulib.Kernel)
	})
	return o.reference
}

// each calls fn with each of operators that a user has supplied, until a call fails.
func each(operators []operator.Operator, fn func(*Operator) error) error {
	for _, op := range operators {
		var o *Operator
		switch op := op.(type) {
		case *Operator:
			o = op
		case *variable:
			o = op.Operator
		default:
			continue
		}
		if err := fn(o); err != nil {
			return err
		}
	}
	return nil
}

// Kernels opens the libraries of users' operators, and returns their kernels for the host device. It ignores built-in operators
// in operators.
func Kernels(operators []operator.Operator) (kernels []device.HostKernel, err error) {
	err = each(operators, func(o *Operator) error {
		library, err := o.source.Library()
		kernels = append(kernels, library)
		return err
	})
	return kernels, err
}

// CheckReferences returns an error if a user's operator can't compute references, because it has no library for the CPU.
func CheckReferences(operators []operator.Operator) error {
	_, err := Kernels(operators)
	return err
}

// variable is an operator whose results have byte strings. It implements operator.Variable.
type variable struct{ *Operator }

// AppendStrings implements operator.Variable.
func (v *variable) AppendStrings(dst, results []byte, offsets []uint32, row int) []byte {
	return v.Operator.Operator.AppendStrings(dst, offsets, results, row)
}

// ArrowColumn implements operator.Columnar.
func (o *Operator) ArrowColumn() arrowipc.Column { return operator.DeclaredColumn(o.Operator) }

// Declaration implements operator.Declared.
func (o *Operator) Declaration() *compiled.Operator { return o.Operator }
