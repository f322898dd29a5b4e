package client

import (
	"encoding/binary"
	"fmt"
	"iter"
	"strings"
)

// Status is the outcome of a record. Its number is the record's status byte in binary results.
type Status uint8

const (
	OK            Status = iota // every operator has a value
	Null                        // the record is a null of an Arrow column, or doesn't have the worker's field
	TooLarge                    // the record exceeds the worker's limit, or its result doesn't fit into a message
	OperatorError               // an operator refused the record or failed on it
	DeviceFault                 // the record makes the device fail
	NoField                     // the record doesn't have the worker's field, or the field isn't a string
	InvalidJSON                 // the record isn't valid JSON
	FilterError                 // the worker's filter fails on the record
)

// statuses are the names in Arrow results, and the reasons in JSON results and dead letters.
var statuses = [...]string{OK: "ok", Null: "null", TooLarge: "too_large", OperatorError: "operator_error", DeviceFault: "device_fault",
	NoField: "no_field", InvalidJSON: "invalid_json", FilterError: "filter_error"}

// String returns the name of the status in Arrow results.
func (s Status) String() string {
	if int(s) < len(statuses) {
		return statuses[s]
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// Result is a decoded binary result. Its values are slices of the decoded body.
type Result struct {
	// Version is the version of the format: 1 for a message that is one record, 2 for a frame, 3 for a frame with a filter. It is 0 for an
	// empty body. An empty body is the result of a frame without records, or of a message whose records the filter all left out.
	Version int

	// PayloadBytes is the length of the record in version 1. Later versions don't contain lengths.
	PayloadBytes uint64

	// FirstRecord is the index in the input of the result's first record. It is 0 unless the result is in several parts or a filter
	// left out records.
	FirstRecord int

	// Operators are the operators in the worker's order.
	Operators []Operator

	statuses []byte   // one status per record
	numbers  []int    // index of each record in the input; nil if they follow FirstRecord without gaps
	columns  [][]byte // for each operator, the records' values back to back
	strings  []byteStrings
}

// Operator describes one operator of a result.
type Operator struct {
	Spec   string // name with all parameters, such as minhash?k=24&hashes=128&seed=42
	Stride int    // bytes of a value, without its byte strings

	ByteStrings bool // whether its values have byte strings
}

// Name returns the operator's name, without parameters.
func (o Operator) Name() string {
	name, _, _ := strings.Cut(o.Spec, "?")
	return name
}

// Len returns the number of records.
func (r *Result) Len() int { return len(r.statuses) }

// Operator returns the index in Operators of the first operator with the given name or spec, or -1 if there is no such operator.
func (r *Result) Operator(name string) int {
	for i, o := range r.Operators {
		if name == o.Spec || name == o.Name() {
			return i
		}
	}
	return -1
}

// Record is one record of a result.
type Record struct {
	Status Status
	result *Result
	index  int
}

// Record returns the record with index i in this message. It panics if there is no such record.
func (r *Result) Record(i int) Record {
	return Record{Status: Status(r.statuses[i]), result: r, index: i}
}

// Number returns the index in the input of the record with index i in this message.
func (r *Result) Number(i int) int {
	if r.numbers != nil {
		return r.numbers[i]
	}
	return r.FirstRecord + i
}

// Records iterates over the records with their indexes in the input, which start at FirstRecord.
func (r *Result) Records() iter.Seq2[int, Record] {
	return func(yield func(int, Record) bool) {
		for i := range r.statuses {
			if !yield(r.Number(i), r.Record(i)) {
				return
			}
		}
	}
}

// Value returns the value of the operator with the given index as a slice of the body, or nil if the record's status isn't OK. It
// panics if there is no such operator.
func (r Record) Value(operator int) []byte {
	stride := r.result.Operators[operator].Stride
	if r.Status != OK {
		return nil
	}
	return r.result.columns[operator][r.index*stride:][:stride:stride]
}

// Uint32 returns the value of an operator whose values are one uint32, such as crc32c. It returns false if the record's status
// isn't OK, or if the operator's values have another size.
func (r Record) Uint32(operator int) (uint32, bool) {
	value := r.Value(operator)
	if len(value) != 4 {
		return 0, false
	}
	return binary.LittleEndian.Uint32(value), true
}

// AppendUint32s appends the value of an operator whose values are lists of uint32, such as minhash. It appends to dst and returns the
// extended slice. It appends nothing if the record's status isn't OK.
func (r Record) AppendUint32s(dst []uint32, operator int) []uint32 {
	for value := r.Value(operator); len(value) >= 4; value = value[4:] {
		dst = append(dst, binary.LittleEndian.Uint32(value))
	}
	return dst
}

// Strings returns the byte strings in the value of the operator with the given index, without gaps, as a slice of the body. Value
// contains the length of each byte string as a little-endian uint32 at the position of its field. Strings returns nil if the operator
// has no byte strings, or if the record's status isn't OK. It panics if there is no such operator.
func (r Record) Strings(operator int) []byte {
	s := r.result.strings[operator]
	if len(s.positions) == 0 || r.Status != OK {
		return nil
	}
	from, to := s.position(r.index), s.position(r.index+1)
	return s.bytes[from:to:to]
}
