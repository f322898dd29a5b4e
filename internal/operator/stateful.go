package operator

import "slices"

// Stateful is an operator whose result for a record depends on the records before it. It has two parts. Its kernel has no state, runs in
// pipelines like any other kernel, and computes the keys of each record. A device.State with the same name then decides on the records
// in the order of the stream, and returns the values.
//
// The methods of Operator describe the values: JSON, Stride and the other formats. AppendReference can't be called, because a value
// depends on other records.
type Stateful interface {
	Operator

	// Kernel returns the kernel as an operator. Its results are keys, with Stride bytes for each record.
	Kernel() Operator
}

// KernelOf returns the operator that pipelines run for op: the Kernel of a Stateful, or else op itself.
func KernelOf(op Operator) Operator {
	if s, ok := op.(Stateful); ok {
		return s.Kernel()
	}
	return op
}

// HasState reports whether one of ops is a Stateful.
func HasState(ops []Operator) bool {
	return slices.ContainsFunc(ops, func(op Operator) bool {
		_, ok := op.(Stateful)
		return ok
	})
}

// Kernels returns the operators that pipelines run for ops.
func Kernels(ops []Operator) []Operator {
	all := make([]Operator, len(ops))
	for i, op := range ops {
		all[i] = KernelOf(op)
	}
	return all
}
