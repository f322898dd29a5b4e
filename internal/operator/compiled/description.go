// Package compiled reads the description of a compiled operator, which has its name, parameters, result fields and reasons. An
// operator is compiled from one source file for a GPU or for the CPU (docs/adr/0040-operators-of-your-own.md). Its description is a
// constant in the compiled file, so the package neither loads nor runs the code.
//
// The package doesn't trust its input. A description that contradicts itself is an error, and all sizes are limited. Start reading
// with Description, then decode.go and file.go. kernels/include/millrace/description.h specifies the format.
package compiled

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"millrace/client/quality"
)

// Contract is the version of the contract between operators and the worker. This package reads operators that need this version
// or an earlier version.
const Contract = 1

// Limits and sizes of the format.
const (
	maxNumbers       = 1 << 20 // elements of an array
	maxStringBytes   = 1 << 24 // constant part of the maximum length of a byte string
	maxPerByte       = 1 << 10 // factor in the maximum length of a byte string
	maxDescription   = 1 << 16 // bytes of a description
	maxThreads       = 1024    // threads of a block
	warp             = 32
	maxReasons       = 64
	maxParameters    = 32
	maxFields        = 64
	nameBytes        = 32
	maxPasses        = 8
	reasonBytes      = 64
	descriptionBytes = 176 // struct millrace_description of contract 1
	parameterBytes   = 72  // struct millrace_parameter
	fieldBytes       = 64  // struct millrace_field
	passBytes        = 56  // struct millrace_pass
)

// Description describes an operator.
type Description struct {
	Name       string
	Version    uint32 // incremented when results or parameters change
	Form       Form
	Threads    int      // threads per block on a GPU; 0 for Library
	Teams      int      // records that a block processes at once; 0 for Library
	Checked    bool     // whether the code checks every access to a record
	Source     [32]byte // SHA-256 of the source file; zeros if unknown
	Parameters []Parameter
	Fields     []Field // at least one
	Reasons    []string
	Passes     []Pass // in the order in which they run before the records are computed
	Scratch    Scratch

	// Folder is the folder of the files of tables. ReadFile sets it to the folder of the compiled operator. If it is empty, Bind
	// returns an error for tables.
	Folder string
}

// blockBytes returns the size of the parameter block. Parameters are in order of declaration, each aligned to its size.
func (d *Description) blockBytes() int {
	at := 0
	for _, p := range d.Parameters {
		at = alignUp(at, p.Type.Size()) + p.Type.Size()
	}
	return at
}

// Form is the form of an operator's code: the unit of a GPU that computes one record, or Library for host code.
type Form uint32

// These constants are the forms.
const (
	Thread  Form = 1
	Warp    Form = 2
	Block   Form = 3
	Library Form = 5 // host code that launches kernels, as in the built-in operators
)

func (f Form) String() string {
	switch f {
	case Thread:
		return "thread per record"
	case Warp:
		return "warp per record"
	case Block:
		return "block per record"
	case Library:
		return "host code"
	}
	return "unknown form"
}

// Type is the type of a parameter, or of the elements of a field.
type Type uint32

// These constants are the types.
const (
	Uint8 Type = iota + 1
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	Float32
	Float64
	Bytes // a byte string; the record contains its length as a uint32
	Table // a parameter with the contents of a file; the block contains their position and size, two uint32
	Bool  // a parameter that is true or false; the block contains 1 or 0, a uint8
)

var types = [...]struct {
	name  string
	bytes int
}{
	Uint8: {"uint8", 1}, Uint16: {"uint16", 2}, Uint32: {"uint32", 4}, Uint64: {"uint64", 8},
	Int8: {"int8", 1}, Int16: {"int16", 2}, Int32: {"int32", 4}, Int64: {"int64", 8},
	Float32: {"float32", 4}, Float64: {"float64", 8}, Bytes: {"bytes", 4}, Table: {"table", 8}, Bool: {"bool", 1},
}

func (t Type) isValid() bool { return t >= Uint8 && t <= Bool }

// String returns the name of the type, as in Go.
func (t Type) String() string {
	if !t.isValid() {
		return "unknown type"
	}
	return types[t].name
}

// Size returns the size of an element in a record, in bytes.
func (t Type) Size() int { return types[t].bytes }

func (t Type) isUnsigned() bool { return t >= Uint8 && t <= Uint64 }
func (t Type) isSigned() bool   { return t >= Int8 && t <= Int64 }
func (t Type) float() bool      { return t == Float32 || t == Float64 }

// Parameter is a number, a truth value or a table, which a user may choose. A table is a file with a size from Min to Max bytes.
type Parameter struct {
	Name              string
	Type              Type
	Shown             bool // whether the JSON result contains the value
	Default, Min, Max Number
}

// Number is the value of a parameter. Depending on the parameter's type, its bits are an unsigned integer, a signed integer, or a
// float64. The value of a table is its size, and the value of a Bool is 0 or 1.
type Number uint64

// Float returns the value of a parameter of type Float32 or Float64.
func (n Number) Float() float64 { return math.Float64frombits(uint64(n)) }

// Field is one value in the result of a record. A result has an optional field only if the field's parameter is true.
type Field struct {
	Name           string
	Type           Type
	Array          bool
	Count          int // number of elements; 0 if the parameter CountParameter holds the number
	CountParameter int // index of a parameter, or -1; the field is optional if the parameter is a Bool

	Hex        bool // whether the JSON value is a string of hexadecimal digits
	BareJSON   bool // whether the only field is the operator's JSON value, without an object
	BareColumn bool // whether the only field is the operator's Arrow column, without a struct

	MaxBytes, MaxPerByte int // a byte string of a record of n bytes has at most MaxBytes + MaxPerByte*n bytes
}

// Pass is code that works on a whole batch, block by block, before the records are computed. The number of blocks is
// (Constant + PerRow*rows + PerByte*bytes) / Share, rounded up.
type Pass struct {
	Name            string // the symbol is PassSymbol followed by the name
	Threads         int    // threads per block on a GPU
	Constant        int
	PerRow, PerByte int
	Share           int
}

// PassSymbol is the prefix of the name of a pass's kernel or function.
const PassSymbol = "millrace_operator_pass_"

// Blocks returns the number of blocks for a batch with the given numbers of records and bytes.
func (p Pass) Blocks(rows, bytes int) int {
	return (p.Constant + p.PerRow*rows + p.PerByte*bytes + p.Share - 1) / p.Share
}

// Scratch is the size of an operator's scratch memory: Bytes + PerRow*rows + PerByte*bytes. It is zero for an operator without passes.
type Scratch struct{ Bytes, PerRow, PerByte int }

// Size returns the size in bytes of the scratch memory for a batch with the given numbers of records and bytes.
func (s Scratch) Size(rows, bytes int) int { return s.Bytes + s.PerRow*rows + s.PerByte*bytes }

// BuiltIn returns the descriptions of the built-in operators. Package operator creates the built-in operators from them, and package cuda
// rejects a kernel library with other descriptions. neardup's description describes its kernel, whose results are keys. Each call returns
// new descriptions.
func BuiltIn() []*Description {
	return []*Description{
		{
			Name: "crc32c", Version: 1, Form: Library,
			Fields: []Field{{Name: "checksum", Type: Uint32, Count: 1, CountParameter: -1, Hex: true, BareJSON: true, BareColumn: true}},
		},
		{
			Name: "minhash", Version: 2, Form: Library,
			Parameters: []Parameter{
				{Name: "k", Type: Uint32, Shown: true, Default: 24, Min: 1, Max: 256},
				{Name: "hashes", Type: Uint32, Default: 128, Min: 1, Max: 1024},
				{Name: "seed", Type: Uint32, Shown: true, Default: 42, Max: math.MaxUint32},
			},
			Fields: []Field{{Name: "signature", Type: Uint32, Array: true, CountParameter: 1, BareColumn: true}},
		},
		{
			Name: "quality", Version: 1, Form: Library,
			Parameters: []Parameter{{Name: "ngrams", Type: Bool, Max: 1}},
			Fields:     qualityFields(), Reasons: []string{quality.InvalidUTF8},
		},
		{
			Name: "neardup", Version: 1, Form: Library,
			Parameters: []Parameter{
				{Name: "bands", Type: Uint32, Default: 20, Min: 1, Max: 64},
				{Name: "rows", Type: Uint32, Default: 13, Min: 1, Max: 1024},
				{Name: "k", Type: Uint32, Default: 24, Min: 1, Max: 256},
				{Name: "seed", Type: Uint32, Default: 42, Max: math.MaxUint32},
			},
			Fields: []Field{{Name: "keys", Type: Uint64, Array: true, CountParameter: 0, BareColumn: true}},
		},
	}
}

// qualityFields returns a field for each counter. The counters of n-grams are optional.
func qualityFields() (fields []Field) {
	for c := range quality.NumCounters {
		f := Field{Name: c.String(), Type: Uint32, Count: 1, CountParameter: -1}
		if c >= quality.Duplicate5GramChars {
			f.Count, f.CountParameter = 0, 0
		}
		fields = append(fields, f)
	}
	return fields
}

// Declaration returns the operator's name, version, form, parameters, fields and reasons as one line, for example "entropy version
// 1, thread per record, bits=4 (uint32, 1 to 6), peak uint32".
func (d *Description) Declaration() string {
	parts := []string{fmt.Sprintf("%s version %d", d.Name, d.Version), d.Form.String()}
	for _, p := range d.Parameters {
		text := p.Text()
		if p.Shown {
			text += " shown"
		}
		parts = append(parts, text)
	}
	for _, f := range d.Fields {
		text := d.Text(f)
		if f.BareJSON {
			text += " bare in JSON"
		}
		if f.BareColumn {
			text += " bare in Arrow"
		}
		parts = append(parts, text)
	}
	for _, r := range d.Reasons {
		parts = append(parts, fmt.Sprintf("reason %q", r))
	}
	return strings.Join(parts, ", ")
}

// Text returns the parameter's name, type, default and bounds, for example "bits=4 (uint32, 1 to 6)" or "words=FILE (table, 1 to 65536
// bytes)".
func (p Parameter) Text() string {
	switch p.Type {
	case Table:
		return p.Name + "=FILE (table, " + strconv.Itoa(int(p.Min)) + " to " + strconv.Itoa(int(p.Max)) + " bytes)"
	case Bool:
		return p.Name + "=" + p.format(p.Default) + " (bool)"
	}
	return p.Name + "=" + p.format(p.Default) + " (" + p.Type.String() + ", " + p.format(p.Min) + " to " + p.format(p.Max) + ")"
}

// Text returns the field's name and type, for example "signature uint32[hashes]", and the parameter of an optional field.
func (d *Description) Text(f Field) string {
	text := f.Name + " " + f.Type.String()
	switch {
	case f.CountParameter >= 0 && !f.Array:
		text += " if " + d.Parameters[f.CountParameter].Name
	case f.CountParameter >= 0:
		text += "[" + d.Parameters[f.CountParameter].Name + "]"
	case f.Array:
		text += "[" + strconv.Itoa(f.Count) + "]"
	case f.Type == Bytes:
		text += ", at most " + f.bound()
	}
	if f.Hex {
		text += ", hex"
	}
	return text
}

// bound returns the maximum length of a byte string.
func (f Field) bound() string {
	switch {
	case f.MaxPerByte == 0:
		return strconv.Itoa(f.MaxBytes)
	case f.MaxBytes == 0:
		return strconv.Itoa(f.MaxPerByte) + " per byte"
	}
	return strconv.Itoa(f.MaxBytes) + " and " + strconv.Itoa(f.MaxPerByte) + " per byte"
}
