// Package operator defines the computations for a batch: the operators' names and parameters, the layout of their results, and the code
// that writes and checks result messages.
//
// This package implements every built-in operator twice. The two implementations share no code except murmur3, minhash's parameters and the
// keys of package neardup, which have their own tests. The reference (Operator.AppendReference) is simple, processes one payload at a time,
// and defines the correct result. The host kernel (HostKernels) is fast, processes a whole ragged batch, and runs on the host and sim
// devices. It may have variants for several instruction sets (package simd). The GPU kernel of the same name is a third implementation. All
// three must return the same bytes for the same payload. An operator's declaration determines its parameters and encodings (package
// compiled).
//
// The worker parses MILLRACE_OPERATORS with ParseList, package streams runs the operators, and internal/ingest writes
// their results with Format. Start reading with this file, then parse.go and format.go.
package operator

import (
	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// Operator is an operator with its parameters. It is immutable and safe for concurrent use.
//
// The result for one payload is a record of Stride bytes, little-endian on every machine. A Variable also has byte strings.
type Operator interface {
	// Name returns the operator's name, for example "minhash". It is the key in a JSON result and the name that
	// device.Device.Kernel accepts.
	Name() string

	// String returns the canonical spec with every parameter, for example "minhash?k=24&hashes=128&seed=42". Parse accepts it and returns
	// an equal operator.
	String() string

	// Params returns the parameter block for device.Device.Kernel, little-endian and packed. The caller owns it. The
	// block of crc32c is empty. The block of minhash has uint32 k, uint32 hashes, uint32 seed.
	Params() []byte

	// Stride returns the length of one record in bytes. It is 4 for crc32c (one uint32), 4*hashes for minhash (one uint32 per entry
	// of the signature), and 152 for quality (one uint32 per counter).
	Stride() int

	// AppendJSON appends the compact JSON value of one record. It panics if record is not Stride bytes long.
	AppendJSON(dst, record []byte) []byte

	// MaxJSON returns the maximum number of bytes that AppendJSON appends.
	MaxJSON() int

	// AppendReference appends the record of one payload, computed by the reference implementation.
	AppendReference(dst, payload []byte) []byte
}

// Declared is implemented by operators that have a declaration of their parameters and results. All operators of a worker
// implement Declared.
type Declared interface {
	Operator

	// Declaration returns the declared operator, which has the same values and the same JSON.
	Declaration() *compiled.Operator
}

// Refuser is implemented by operators that can refuse a record. Their results for a batch have a status for each record.
type Refuser interface {
	Operator

	// Refusal returns the reason why a record has no result, or "" if it has a result. results is the result of the operator's kernel
	// for a batch with the given number of rows. A record's reason is the same in any batch and on any device. It has at most 64
	// printable ASCII characters.
	Refusal(results []byte, rows, row int) string
}

// ReferenceRefuser is a Refuser whose reference implementation refuses the same payloads for the same reasons. The built-in operators
// with reasons are ReferenceRefusers.
type ReferenceRefuser interface {
	Refuser

	// ReferenceRefusal returns the reason why a payload has no result, or "" if it has a result. If a payload has no result,
	// AppendReference appends zeros.
	ReferenceRefusal(payload []byte) string
}

// RefusalText returns the message for users about a record that the operator called name refused.
func RefusalText(name, reason string) string { return "operator " + name + ": " + reason }

// Variable is implemented by operators whose results have byte strings. A value starts with a record of Stride bytes, which contains the
// length of each byte string. The byte strings follow without gaps. The value of any other operator is only the record.
//
// For a Variable, AppendReference appends a value, and AppendJSON expects a value. MaxJSON doesn't count the byte strings. Each of
// their bytes adds at most two bytes.
type Variable interface {
	Operator

	// MaxStrings returns the maximum total length of a record's byte strings: limit + perByte times the length of the payload.
	MaxStrings() (limit, perByte int)

	// AppendStrings appends the byte strings of a row. results is the result of the operator's kernel for a batch with the given
	// offsets.
	AppendStrings(dst, results []byte, offsets []uint32, row int) []byte
}

// stringJSON is the maximum number of bytes in JSON for one byte of a byte string.
const stringJSON = 2

// StringBytes returns the maximum total length of the byte strings in the results of a number of payloads. bytes is the payloads' total
// length.
func StringBytes(ops []Operator, payloads, bytes int) (limit int) {
	for _, op := range ops {
		if v, ok := op.(Variable); ok {
			each, perByte := v.MaxStrings()
			limit += each*payloads + perByte*bytes
		}
	}
	return limit
}

// Value returns the value of a row in a batch with the given offsets. For a Variable, Value appends the value to scratch and returns the
// appended part.
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

// HostVariant returns the implementation that the named built-in operator's host kernel uses on this processor: an instruction set such as
// "AVX2", or "Go". It returns "" for an operator with one implementation.
func HostVariant(name string) string {
	if name == minhashName || name == neardupName {
		return minhashVariants[0].Name
	}
	return ""
}

// HostKernels returns the built-in operators' kernels for devices that use host memory as device memory.
func HostKernels() (kernels []device.HostKernel) {
	for _, s := range builtIns {
		kernels = append(kernels, s.(*builtInSource).kernel)
	}
	return kernels
}
