package compiled

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Operator is an operator with its parameters. It is immutable and safe for concurrent use.
//
// The result of one payload is a record of Stride bytes: the fields in order of declaration, each aligned to the size of its elements,
// padded with zeros to the size of the largest element. A byte string has its length there, and its contents elsewhere.
type Operator struct {
	description *Description
	values      []Number // values[i] belongs to Parameters[i]
	spec        string
	block       []byte
	stride      int
	fields      []place // places[i] belongs to Fields[i]
}

// place says where a field is in a record.
type place struct{ at, count int }

// Bind returns the operator with parameters from a query such as "bits=5&seed=1", in any order, each at most once. The others have
// their defaults. The error names every problem and the permitted values.
func (d *Description) Bind(query string) (*Operator, error) {
	values, err := d.parse(query)
	if err != nil {
		return nil, err
	}
	return d.bind(values), nil
}

// BindBlock returns the operator with the parameters in a block that Operator.Params has returned.
func (d *Description) BindBlock(block []byte) (*Operator, error) {
	if len(block) != d.blockBytes() {
		return nil, fmt.Errorf("the parameter block has %d bytes: give %d", len(block), d.blockBytes())
	}
	values, at := make([]Number, len(d.Parameters)), 0
	for i, p := range d.Parameters {
		size := p.Type.Size()
		at = alignUp(at, size)
		n := p.number(block[at : at+size])
		if !p.representable(n) || p.less(n, p.Least) || p.less(p.Most, n) {
			return nil, fmt.Errorf("parameter %q is %s: give %s to %s", p.Name, p.format(n), p.format(p.Least), p.format(p.Most))
		}
		values[i] = n
		at += size
	}
	return d.bind(values), nil
}

func (d *Description) bind(values []Number) *Operator {
	o := &Operator{description: d, values: values, spec: d.Name}
	separator := "?"
	for i, p := range d.Parameters {
		o.spec += separator + p.Name + "=" + p.format(values[i])
		separator = "&"
		o.block = append(o.block, make([]byte, alignUp(len(o.block), p.Type.Size())-len(o.block))...)
		o.block = p.append(o.block, values[i])
	}
	largest := 1
	for _, f := range d.Fields {
		size, count := f.Type.Size(), f.Count
		if f.CountParameter >= 0 {
			count = int(values[f.CountParameter])
		}
		at := alignUp(o.stride, size)
		o.fields = append(o.fields, place{at, count})
		o.stride, largest = at+size*count, max(largest, size)
	}
	o.stride = alignUp(o.stride, largest)
	return o
}

func (d *Description) parse(query string) ([]Number, error) {
	values := make([]Number, len(d.Parameters))
	for i, p := range d.Parameters {
		values[i] = p.Default
	}
	if query == "" {
		return values, nil
	}
	if len(d.Parameters) == 0 {
		return nil, fmt.Errorf("operator %q: it takes no parameters, got %q", d.Name, query)
	}
	given := make([]bool, len(values))
	var errs []error
	for pair := range strings.SplitSeq(query, "&") {
		name, text, _ := strings.Cut(pair, "=")
		i, err := d.find(name)
		if err == nil && given[i] {
			err = fmt.Errorf("parameter %q is given twice", name)
		}
		if err == nil {
			given[i] = true
			values[i], err = d.Parameters[i].parse(text)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("operator %q: %w", d.Name, err)
	}
	return values, nil
}

func (d *Description) find(name string) (int, error) {
	var names []string
	for i, p := range d.Parameters {
		if p.Name == name {
			return i, nil
		}
		names = append(names, p.Name)
	}
	return 0, fmt.Errorf("unknown parameter %q: known are %s", name, strings.Join(names, ", "))
}

// parse parses the value of the parameter and checks its bounds.
func (p Parameter) parse(text string) (Number, error) {
	var (
		n    Number
		err  error
		kind = "whole number"
		bits = 8 * p.Type.Size()
	)
	switch {
	case p.Type.unsigned():
		var v uint64
		v, err = strconv.ParseUint(text, 10, bits)
		n = Number(v)
	case p.Type.signed():
		var v int64
		v, err = strconv.ParseInt(text, 10, bits)
		n = Number(v)
	default:
		kind = "number"
		var v float64
		v, err = strconv.ParseFloat(text, bits)
		n = Number(math.Float64bits(v))
	}
	if err != nil || !p.representable(n) || p.less(n, p.Least) || p.less(p.Most, n) {
		return 0, fmt.Errorf("parameter %q is %q: give a %s from %s to %s", p.Name, text, kind, p.format(p.Least), p.format(p.Most))
	}
	return n, nil
}

// format returns the value as parse reads it.
func (p Parameter) format(n Number) string {
	switch {
	case p.Type.unsigned():
		return strconv.FormatUint(uint64(n), 10)
	case p.Type.signed():
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatFloat(n.Float(), 'g', -1, 8*p.Type.Size())
}

// append appends the value as the parameter block has it.
func (p Parameter) append(block []byte, n Number) []byte {
	switch p.Type {
	case Float32:
		return binary.LittleEndian.AppendUint32(block, math.Float32bits(float32(n.Float())))
	case Uint8, Int8:
		return append(block, byte(n))
	case Uint16, Int16:
		return binary.LittleEndian.AppendUint16(block, uint16(n))
	case Uint32, Int32:
		return binary.LittleEndian.AppendUint32(block, uint32(n))
	}
	return binary.LittleEndian.AppendUint64(block, uint64(n))
}

// number returns the value that append wrote.
func (p Parameter) number(data []byte) Number {
	bits := unsignedBits(data)
	switch unused := 64 - 8*len(data); {
	case p.Type == Float32:
		return Number(math.Float64bits(float64(math.Float32frombits(uint32(bits)))))
	case p.Type.signed():
		return Number(int64(bits) << unused >> unused)
	}
	return Number(bits)
}

// unsignedBits returns a little-endian number of 1, 2, 4 or 8 bytes.
func unsignedBits(data []byte) uint64 {
	switch len(data) {
	case 1:
		return uint64(data[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(data))
	case 4:
		return uint64(binary.LittleEndian.Uint32(data))
	}
	return binary.LittleEndian.Uint64(data)
}

// Description returns what the operator says about itself.
func (o *Operator) Description() *Description { return o.description }

// Name returns the operator's name. It is the key in a JSON result.
func (o *Operator) Name() string { return o.description.Name }

// String returns the canonical spec with every parameter, for example "entropy?bits=4". Bind returns an equal operator for what
// follows the question mark.
func (o *Operator) String() string { return o.spec }

// Params returns the parameter block, little-endian. The caller owns it.
func (o *Operator) Params() []byte { return append([]byte{}, o.block...) }

// Stride returns the length of one record in bytes.
func (o *Operator) Stride() int { return o.stride }

// Place returns where field i begins in a record, and the number of its elements.
func (o *Operator) Place(i int) (at, count int) { return o.fields[i].at, o.fields[i].count }

// Reason returns the text for the status byte of a record that the operator didn't compute: a declared reason, or what the code did.
// ok is false for a status that the operator can't return.
func (o *Operator) Reason(status byte) (text string, ok bool) {
	switch reasons := o.description.Reasons; {
	case status == statusOutOfBounds:
		return outOfBounds, true
	case status == statusFailed:
		return "the operator failed on the record", true
	case status >= 1 && int(status) <= len(reasons):
		return reasons[status-1], true
	}
	return "", false
}

// The statuses of records besides 0, which means done, and the numbers of reasons.
const (
	statusOutOfBounds = 254
	statusFailed      = 255
)
