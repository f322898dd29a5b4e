package own

import (
	"sync"

	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
)

// Operator is an operator of your own with its parameters. It implements operator.Refuser.
type Operator struct {
	source *Source
	bound  *compiled.Operator

	bind      sync.Once
	reference *cpulib.Kernel // set by bind
}

// Name implements operator.Operator.
func (o *Operator) Name() string { return o.source.name }

// String implements operator.Operator.
func (o *Operator) String() string { return o.bound.String() }

// Params implements operator.Operator.
func (o *Operator) Params() []byte { return o.bound.Params() }

// Stride implements operator.Operator.
func (o *Operator) Stride() int { return o.bound.Stride() }

// Needs implements operator.Operator.
func (o *Operator) Needs(s device.Shape) device.Needs {
	return device.Needs{Scratch: o.bound.Scratch(s.Rows, s.Bytes), Result: o.bound.Layout(s.Rows, s.Bytes).End}
}

// AppendJSON implements operator.Operator.
func (o *Operator) AppendJSON(dst, record []byte) []byte { return o.bound.AppendJSON(dst, record) }

// MostJSON implements operator.Operator. It doesn't count the bytes of byte strings, which take two bytes each.
func (o *Operator) MostJSON() int {
	most, _ := o.bound.MostStrings()
	return o.bound.MostJSON(0) - 2*most
}

// Refusal implements operator.Refuser.
func (o *Operator) Refusal(results []byte, rows, row int) string {
	return o.bound.Refusal(o.bound.Status(results, rows, row))
}

// FailedBatch implements operator.Faulty.
func (o *Operator) FailedBatch(results []byte, rows int) string {
	return o.bound.FailedBatch(results, rows)
}

// Overlong implements operator.Faulty.
func (o *Operator) Overlong(results []byte, offsets []uint32, row int) string {
	return o.bound.Overlong(offsets, results, row)
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

// AppendReference implements operator.Operator with the library itself, on a batch of the payload alone. The record of a payload that
// the operator refuses is zeros. A record that the description doesn't permit is what the code left, without byte strings that exceed
// their bounds. AppendReference panics if the library can't be opened, which Kernels reports before.
func (o *Operator) AppendReference(dst, payload []byte) []byte {
	kernel := o.kernel()
	offsets := []uint32{0, uint32(len(payload))}
	needs := o.Needs(device.Shape{Rows: 1, Bytes: len(payload)})
	scratch, result := make([]byte, needs.Scratch), make([]byte, needs.Result)
	one := func(n int, fn func(i int)) {
		for i := range n {
			fn(i)
		}
	}
	if err := kernel.RunUnchecked(payload, offsets, scratch, result, one); err != nil {
		clear(result)
	}
	return o.bound.AppendValue(dst, offsets, result, 0)
}

// kernel returns the library's kernel with the operator's parameters. It panics if the library can't be opened.
func (o *Operator) kernel() *cpulib.Kernel {
	o.bind.Do(func() {
		library, err := o.source.load()
		if err != nil {
			panic(err)
		}
		bound, err := library.Bind(o.bound.Params())
		if err != nil {
			panic(err) // Bind has checked the parameters
		}
		o.reference = bound.(*cpulib.Kernel)
	})
	return o.reference
}

// Kernels opens the libraries of the operators of your own among operators, and returns their kernels for the host device.
func Kernels(operators []operator.Operator) (kernels []device.HostKernel, err error) {
	for _, op := range operators {
		o := of(op)
		if o == nil {
			continue
		}
		library, err := o.source.load()
		if err != nil {
			return nil, err
		}
		kernels = append(kernels, unchecked{library})
	}
	return kernels, nil
}

// unchecked is a library without the check of results that its own Run makes. So the host device behaves as a GPU does, where nothing
// checks what a kernel writes: the consumer refuses a record with an undeclared result, and the device works on.
type unchecked struct{ *cpulib.Library }

// Bind implements device.HostKernel.
func (u unchecked) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := u.Library.Bind(params)
	if err != nil {
		return nil, err
	}
	return uncheckedKernel{bound.(*cpulib.Kernel)}, nil
}

type uncheckedKernel struct{ *cpulib.Kernel }

// Run implements device.BoundHostKernel.
func (k uncheckedKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	return k.RunUnchecked(rows, offsets, scratch, result, parallel)
}

// References returns an error if one of the operators can't compute references, because it has no library for the CPU.
func References(operators []operator.Operator) error {
	for _, op := range operators {
		if o := of(op); o != nil {
			if _, err := o.source.load(); err != nil {
				return err
			}
		}
	}
	return nil
}

// variable is an operator whose results have byte strings. It implements operator.Variable.
type variable struct{ *Operator }

// MostStrings implements operator.Variable.
func (v *variable) MostStrings() (most, perByte int) { return v.bound.MostStrings() }

// AppendStrings implements operator.Variable.
func (v *variable) AppendStrings(dst, results []byte, offsets []uint32, row int) []byte {
	return v.bound.AppendStrings(dst, offsets, results, row)
}

// of returns the operator of your own, or nil if op is built in.
func of(op operator.Operator) *Operator {
	switch o := op.(type) {
	case *Operator:
		return o
	case *variable:
		return o.Operator
	}
	return nil
}

// Names returns the names of the operators of your own among operators.
func Names(operators []operator.Operator) (names []string) {
	for _, op := range operators {
		if o := of(op); o != nil {
			names = append(names, o.Name())
		}
	}
	return names
}
