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
// The result of one payload is a record of Stride bytes. The record contains the fields from Fields in order, each aligned to the
// size of its elements. Zeros pad the record to a multiple of the size of its largest element. For a byte string, the record contains
// only the length.
type Operator struct {
	description *Description
	values      []Number // values[i] belongs to Parameters[i]
	spec        string
	block       []byte // the parameter block, followed by the tables
	stride      int
	fields      []Field // the declared fields, without the optional fields whose parameter is false
	places      []place // places[i] belongs to fields[i]
	after       string  // JSON text after the last field
}

// place is the position of a field in a record, and the JSON text before the field.
type place struct {
	at, count int
	before    string
}

type parameterValues struct {
	values []Number
	tables []table // values of the parameters of type Table, in order
}

// Bind returns the operator with parameters from a query such as "bits=5&seed=1", in any order, each at most once. Parameters that aren't
// in the query have their defaults. A table is a file in Folder and has no default. The error names every problem and the permitted values.
func (d *Description) Bind(query string) (*Operator, error) {
	values, err := d.parse(query)
	if err != nil {
		return nil, fmt.Errorf("operator %q: %w", d.Name, err)
	}
	return d.bind(values), nil
}

// BindBlock returns the operator with the parameters in a block from Operator.Params. A spec from such a block doesn't contain the
// names of table files.
func (d *Description) BindBlock(block []byte) (*Operator, error) {
	size, start := d.blockBytes(), d.tablesAt()
	if len(block) < size || start < 0 && len(block) > size || start >= 0 && len(block) < start {
		return nil, fmt.Errorf("the parameter block has %d bytes: give %d", len(block), max(size, start))
	}
	var tables []byte
	if start >= 0 {
		tables = block[start:]
	}
	var (
		values  = parameterValues{values: make([]Number, len(d.Parameters))}
		at, end = 0, 0
		err     error
	)
	for i, p := range d.Parameters {
		size := p.Type.Size()
		at = alignUp(at, size)
		place := block[at : at+size]
		at += size
		if p.Type == Table {
			var t table
			if t, end, err = p.tableIn(place, tables, end); err != nil {
				return nil, err
			}
			values.add(i, t)
			continue
		}
		n := p.Type.Number(place)
		if !p.permits(n) {
			return nil, fmt.Errorf("parameter %q is %s: give %s to %s", p.Name, p.format(n), p.format(p.Min), p.format(p.Max))
		}
		values.values[i] = n
	}
	if end != len(tables) {
		return nil, fmt.Errorf("the parameter block has %d bytes of tables: give %d", len(tables), end)
	}
	return d.bind(values), nil
}

// add sets parameter i to a table.
func (values *parameterValues) add(i int, t table) {
	values.values[i] = Number(len(t.contents))
	values.tables = append(values.tables, t)
}

// tablesAt returns the position of the tables after the parameter block, or -1 if there are no tables.
func (d *Description) tablesAt() int {
	for _, p := range d.Parameters {
		if p.Type == Table {
			return alignUp(d.blockBytes(), tableAlign)
		}
	}
	return -1
}

func (d *Description) bind(values parameterValues) *Operator {
	o := &Operator{description: d, values: values.values, spec: d.Name}
	separator, tables, end := "?", values.tables, 0
	for i, p := range d.Parameters {
		o.block = append(o.block, make([]byte, alignUp(len(o.block), p.Type.Size())-len(o.block))...)
		var text string
		if p.Type == Table {
			at := alignUp(end, tableAlign)
			end = at + len(tables[0].contents)
			o.block = binary.LittleEndian.AppendUint32(o.block, uint32(at))
			o.block = binary.LittleEndian.AppendUint32(o.block, uint32(end-at))
			text, tables = tables[0].format(), tables[1:]
		} else {
			o.block = p.append(o.block, values.values[i])
			text = p.format(values.values[i])
		}
		o.spec += separator + p.Name + "=" + text
		separator = "&"
	}
	o.block = appendTables(o.block, values.tables)
	o.place()
	o.bindJSON()
	return o
}

// place sets the fields, their positions in a record, and the stride.
func (o *Operator) place() {
	largest := 1
	for _, f := range o.description.Fields {
		size, count := f.Type.Size(), f.Count
		if f.CountParameter >= 0 {
			count = int(o.values[f.CountParameter])
		}
		if count == 0 {
			continue
		}
		at := alignUp(o.stride, size)
		o.fields, o.places = append(o.fields, f), append(o.places, place{at: at, count: count})
		o.stride, largest = at+size*count, max(largest, size)
	}
	o.stride = alignUp(o.stride, largest)
}

// parse returns the values of all parameters for a query.
func (d *Description) parse(query string) (parameterValues, error) {
	texts, errs := d.split(query)
	values := parameterValues{values: make([]Number, len(d.Parameters))}
	for i, p := range d.Parameters {
		text, given := texts[i]
		switch {
		case p.Type == Table && !given:
			errs = append(errs, fmt.Errorf("parameter %q has no default: give the name of a file in the operator's folder, %s?%s=FILE", p.Name, d.Name, p.Name))
		case p.Type == Table:
			t, err := d.readTable(p, text)
			errs = append(errs, err)
			values.add(i, t)
		case given:
			n, err := p.parse(text)
			errs = append(errs, err)
			values.values[i] = n
		default:
			values.values[i] = p.Default
		}
	}
	return values, errors.Join(errs...)
}

// split returns the text for each parameter in a query, keyed by the parameter's index. It also returns all errors about names.
func (d *Description) split(query string) (texts map[int]string, errs []error) {
	if query == "" {
		return nil, nil
	}
	if len(d.Parameters) == 0 {
		return nil, []error{fmt.Errorf("it takes no parameters, got %q", query)}
	}
	texts = map[int]string{}
	for pair := range strings.SplitSeq(query, "&") {
		name, text, _ := strings.Cut(pair, "=")
		i, err := d.find(name)
		if _, given := texts[i]; err == nil && given {
			err = fmt.Errorf("parameter %q is given twice", name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		texts[i] = text
	}
	return texts, errs
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
	case p.Type == Bool:
		return p.parseBool(text)
	case p.Type.isUnsigned():
		var v uint64
		v, err = strconv.ParseUint(text, 10, bits)
		n = Number(v)
	case p.Type.isSigned():
		var v int64
		v, err = strconv.ParseInt(text, 10, bits)
		n = Number(v)
	default:
		kind = "number"
		var v float64
		v, err = strconv.ParseFloat(text, bits)
		n = Number(math.Float64bits(v))
	}
	if err != nil || !p.permits(n) {
		return 0, fmt.Errorf("parameter %q is %q: give a %s from %s to %s", p.Name, text, kind, p.format(p.Min), p.format(p.Max))
	}
	return n, nil
}

func (p Parameter) parseBool(text string) (Number, error) {
	switch text {
	case "false":
		return 0, nil
	case "true":
		return 1, nil
	}
	return 0, fmt.Errorf("parameter %q is %q: give true or false", p.Name, text)
}

func (p Parameter) permits(n Number) bool {
	return p.canRepresent(n) && !p.less(n, p.Min) && !p.less(p.Max, n)
}

// format returns the value in the format that parse accepts.
func (p Parameter) format(n Number) string {
	switch {
	case p.Type == Bool && n <= 1:
		return strconv.FormatBool(n == 1)
	case p.Type.isUnsigned() || p.Type == Bool:
		return strconv.FormatUint(uint64(n), 10)
	case p.Type.isSigned():
		return strconv.FormatInt(int64(n), 10)
	}
	return strconv.FormatFloat(n.Float(), 'g', -1, 8*p.Type.Size())
}

// append appends the value in the format of the parameter block.
func (p Parameter) append(block []byte, n Number) []byte {
	if p.Type == Float32 {
		n = Number(math.Float32bits(float32(n.Float())))
	}
	return append(block, binary.LittleEndian.AppendUint64(nil, uint64(n))[:p.Type.Size()]...)
}

// Number decodes data, which is a little-endian number of type t with Size bytes.
func (t Type) Number(data []byte) Number {
	bits := unsignedBits(data)
	switch unused := 64 - 8*len(data); {
	case t == Float32:
		return Number(math.Float64bits(float64(math.Float32frombits(uint32(bits)))))
	case t.isSigned():
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

// Description returns the operator's description.
func (o *Operator) Description() *Description { return o.description }

// Name returns the operator's name. It is the key in a JSON result.
func (o *Operator) Name() string { return o.description.Name }

// String returns the canonical spec with every parameter, for example "entropy?bits=4". Bind returns an equal operator for the
// text after the question mark.
func (o *Operator) String() string { return o.spec }

// Params returns the parameter block, little-endian, followed by the contents of the tables. The caller owns it.
func (o *Operator) Params() []byte { return append([]byte{}, o.block...) }

// Block returns the parameter block without the tables. The caller must not change it.
func (o *Operator) Block() []byte {
	return o.block[:o.description.blockBytes():o.description.blockBytes()]
}

// Tables returns the contents of the tables, in the format that follows the parameter block. The caller must not change them.
func (o *Operator) Tables() []byte {
	if at := o.description.tablesAt(); at >= 0 {
		return o.block[at:]
	}
	return nil
}

// Scratch returns the size in bytes of the scratch memory for a batch with the given numbers of records and bytes.
func (o *Operator) Scratch(rows, bytes int) int { return o.description.Scratch.Size(rows, bytes) }

// Stride returns the length of one record in bytes.
func (o *Operator) Stride() int { return o.stride }

// Value returns the value of parameter i.
func (o *Operator) Value(i int) Number { return o.values[i] }

// Fields returns the fields of a result: the declared fields, without the optional ones whose parameter is false. The caller must not change
// them.
func (o *Operator) Fields() []Field { return o.fields }

// Place returns the position of field i of Fields in a record, and the number of its elements.
func (o *Operator) Place(i int) (at, count int) { return o.places[i].at, o.places[i].count }
