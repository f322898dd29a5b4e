// Package operator says what a batch can be asked: the operators' names and parameters, the layout of their
// results, and how a result message is written and checked.
//
// Every operator is implemented twice here, on purpose apart. The reference (Operator.AppendReference) is
// plain, takes one payload at a time and is what results are checked against. The host kernel (HostKernels)
// is fast, takes a whole ragged batch and is what the devices host and sim run. A GPU's kernel of the same
// name is a third implementation. All give the same bytes for the same payload, or it is a bug.
package operator

import "millrace/internal/device"

// Operator is one operator with its parameters. It is immutable and safe for concurrent use.
//
// Its result for one payload is a record of Stride bytes, little-endian whatever the machine.
type Operator interface {
	// Name is the operator's name, "minhash". It is the key in a JSON result and the name that
	// device.Device.Kernel knows the operator by.
	Name() string

	// String is the canonical spec with every parameter, "minhash?k=24&hashes=128&seed=1". Parse gives
	// an equal operator back.
	String() string

	// Params is the parameter block for device.Device.Kernel, little-endian and packed. The caller owns
	// it. crc32c: empty. minhash: uint32 k, uint32 hashes, uint64 seed.
	Params() []byte

	// Stride is the length of one record in bytes. crc32c: 4, one uint32. minhash: 4*hashes, one uint32
	// for each entry of the signature.
	Stride() int

	// Needs is the memory, in bytes, that the host kernel takes for a batch of that shape. Another
	// device's kernel has needs of its own: ask the device.Kernel.
	Needs(device.Shape) device.Needs

	// AppendJSON appends the JSON value of one record, compact. It panics unless record is Stride bytes
	// long.
	AppendJSON(dst, record []byte) []byte

	// MostJSON is the most bytes that AppendJSON appends, whatever the record.
	MostJSON() int

	// AppendReference appends the record of one payload, computed by the reference.
	AppendReference(dst, payload []byte) []byte
}

// HostKernels are the operators' kernels for devices whose memory is the host's, one for each name that
// Parse knows.
func HostKernels() []device.HostKernel {
	return []device.HostKernel{crc32cHost{}, minhashHost{}}
}
