// Package operator defines the computations for a batch: the operators' names and parameters, the layout of their
// results, and how a result message is written and checked.
//
// Every built-in operator is implemented twice in this package, deliberately without shared code. The reference
// (Operator.AppendReference) is simple, processes one payload at a time, and is the standard for results. The host
// kernel (HostKernels) is fast, processes a whole ragged batch, and runs on the host and sim devices. The GPU kernel of
// the same name is a third implementation. All three must return the same bytes for the same payload. Parameters and encodings
// follow from the operator's declaration, as for any other operator (package compiled).
//
// The worker parses MILLRACE_OPERATORS with ParseList, package streams runs the operators, and internal/ingest writes
// their results with Format. Start reading with this file, then parse.go and format.go.
package operator

import "millrace/internal/device"

// Operator is an operator with its parameters. It is immutable and safe for concurrent use.
//
// The result for one payload is a record of Stride bytes. Records are little-endian on every machine. A Variable also has byte strings.
type Operator interface {
	// Name returns the operator's name, for example "minhash". It is the key in a JSON result and the name that
	// device.Device.Kernel accepts.
	Name() string

	// String returns the canonical spec with every parameter, for example "minhash?k=24&hashes=128&seed=1". Parse
	// returns an equal operator for it.
	String() string

	// Params returns the parameter block for device.Device.Kernel, little-endian and packed. The caller owns it. The
	// block of crc32c is empty; the block of minhash is uint32 k, uint32 hashes, uint64 seed.
	Params() []byte

	// Stride returns the length of one record in bytes. It is 4 for crc32c, one uint32, and 4*hashes for minhash, one
	// uint32 for each entry of the signature.
	Stride() int

	// Needs returns the memory, in bytes, that the host kernel needs for a batch of that shape. The needs of another
	// device's kernel differ: call device.Kernel.Needs for those.
	Needs(device.Shape) device.Needs

	// AppendJSON appends the compact JSON value of one record. It panics if record is not Stride bytes long.
	AppendJSON(dst, record []byte) []byte

	// MostJSON returns the maximum number of bytes that AppendJSON appends.
	MostJSON() int

	// AppendReference appends the record of one payload, computed by the reference implementation.
	AppendReference(dst, payload []byte) []byte
}

// Refuser is implemented by operators that can refuse a record. Their results of a batch have a status for each record in addition to
// the records.
type Refuser interface {
	Operator

	// Refusal returns why the operator has no result for a record, or "" if it has one. results is what the operator's kernel left
	// for a batch of that many rows. The text is the same for the same record in any batch and on any device. It consists of at most
	// 64 printable ASCII characters.
	Refusal(results []byte, rows, row int) string
}

// RefusalText returns what users read about a record that the operator with that name refused for a reason.
func RefusalText(name, reason string) string { return "operator " + name + ": " + reason }

// Variable is implemented by operators whose results have byte strings. The value of a record is its record of Stride bytes, which has the
// length of each byte string, and then the byte strings back to back. The value of any other operator is the record alone.
//
// AppendReference appends a value, and AppendJSON takes one. MostJSON counts no bytes of byte strings: each takes two more at most.
type Variable interface {
	Operator

	// MostStrings returns the bound of the byte strings of a record together: most + perByte times the length of the payload.
	MostStrings() (most, perByte int)

	// AppendStrings appends the byte strings of a row. results is what the operator's kernel left for a batch with these offsets.
	AppendStrings(dst, results []byte, offsets []uint32, row int) []byte
}

// stringJSON is the maximum number of bytes that a byte of a byte string has in JSON.
const stringJSON = 2

// StringBytes returns the maximum length of all byte strings in the results of payloads that have that many bytes together.
func StringBytes(ops []Operator, payloads, bytes int) (most int) {
	for _, op := range ops {
		if v, ok := op.(Variable); ok {
			each, perByte := v.MostStrings()
			most += each*payloads + perByte*bytes
		}
	}
	return most
}

// Value returns the value of a row of a batch with these offsets. For a Variable it is in the memory of scratch, which Value extends.
func Value(op Operator, results []byte, offsets []uint32, row int, scratch *[]byte) []byte {
	record := results[row*op.Stride():][:op.Stride()]
	v, ok := op.(Variable)
	if !ok {
		return record
	}
	start := len(*scratch)
	*scratch = v.AppendStrings(append(*scratch, record...), results, offsets, row)
	return (*scratch)[start:len(*scratch):len(*scratch)]
}

// HostKernels returns the built-in operators' kernels for devices that use host memory as device memory.
func HostKernels() (kernels []device.HostKernel) {
	for _, s := range builtIns {
		kernels = append(kernels, s.(*builtInSource).kernel)
	}
	return kernels
}
