package frame

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	flatbuffers "github.com/google/flatbuffers/go"

	"millrace/internal/jsonfield"
	"millrace/internal/record"
)

// arrowNumber describes the values of a column with numbers or booleans.
type arrowNumber struct {
	kind  numberKind
	width int // bytes of a value; 0 for booleans, which have one bit
}

type numberKind uint8

const (
	noNumber numberKind = iota
	signed
	unsigned
	float
	boolean
)

// findKept returns the column with the given name. If several columns have the name, it returns the last one. If no column has
// the name, found has no type. fault is an error text for the user, which is empty on success.
func (a *arrowSchema) findKept(name string) (found arrowColumn, fault string) {
	for field := range tablesIn(&a.schema, schemaFields) {
		if string(nameOf(&field)) == name {
			found, fault = a.next, ""
			found.typ, found.dictionary = typeOf(&field), a.dictionary(&field)
			if found.number = numberOf(&field, found.typ); !found.isKept() {
				fault = fmt.Sprintf("the column %s has a type that can't be kept: name columns of strings, integers, floating-point numbers or booleans in MILLRACE_KEEP_FIELDS",
					quote([]byte(name)))
			}
		}
		if a.pass(&field, 0); a.fault != "" {
			return found, a.fault
		}
	}
	return found, fault
}

// isKept reports whether the column's type is permitted for a kept field.
func (a *arrowColumn) isKept() bool {
	if a.number.kind != noNumber {
		return a.dictionary.width == 0
	}
	return a.typ == typeUtf8 || a.typ == typeLargeUtf8 || a.typ == typeUtf8View
}

// numberOf returns the description of a column's numbers. The slots are those of the tables Int and FloatingPoint in Arrow's Schema.fbs.
func numberOf(field *flatbuffers.Table, typ arrowType) arrowNumber {
	const bitWidth, isSigned, precision = 4, 6, 4
	details, ok := tableIn(field, fieldType)
	switch {
	case !ok:
	case typ == typeBool:
		return arrowNumber{kind: boolean}
	case typ == typeInt:
		kind := unsigned
		if details.GetBoolSlot(isSigned, false) {
			kind = signed
		}
		switch bits := details.GetInt32Slot(bitWidth, 0); bits {
		case 8, 16, 32, 64:
			return arrowNumber{kind, int(bits / 8)}
		}
	case typ == typeFloatingPoint:
		switch p := details.GetInt16Slot(precision, 0); p {
		case 1, 2:
			return arrowNumber{float, 4 * int(p)}
		}
	}
	return arrowNumber{}
}

// addNumbers adds the values of a column with numbers or booleans. The record of a boolean is the byte that contains its bit.
func (f *Frame) addNumbers(n arrowNumber, base []byte, rows int, nulls int64) error {
	present, err := f.presence(base, rows, nulls)
	if err != nil {
		return err
	}
	values := &f.arrow.buffers[1]
	if n.kind == boolean && values.length < (rows+7)/8 || n.kind != boolean && values.length/n.width < rows {
		return invalid(values.at, "the buffer of values has %d bytes, too few for %d rows: %s", values.length, rows, adviceOnStream)
	}
	for i := range rows {
		start, end := values.pos+i/8, values.pos+i/8+1
		if n.kind != boolean {
			start, end = values.pos+n.width*i, values.pos+n.width*(i+1)
		}
		f.add(start, end)
		if len(present) > 0 && isNull(present, i) {
			f.setStatus(f.Records()-1, record.Null)
		}
	}
	f.endSegment(base, false)
	return nil
}

// keepColumns reads the kept columns of an Arrow stream. f has the stream's records. keepColumns renders the values as JSON texts.
func (f *Frame) keepColumns(columns []string, body []byte) error {
	m := &f.members
	m.keep = len(columns)
	m.kept = append(m.kept, make([]span, f.Records()*m.keep)...)
	for k, name := range columns {
		if f.arrow.keep == nil {
			f.arrow.keep = &Frame{}
		}
		values := f.arrow.keep
		values.Reset()
		values.limits = limits{records: math.MaxInt32, bytes: f.limits.bytes, record: math.MaxUint32}
		s := arrowStream{frame: values, body: body, keeps: true}
		for {
			more, err := s.step(&values.arrow.message, name)
			if err != nil {
				return err
			}
			if !more || s.hasColumn && s.column.typ == 0 {
				break
			}
		}
		values.padStatuses()
		if err := f.render(k, values, s.column.number); err != nil {
			return err
		}
	}
	m.keptFrom = m.rendered
	f.arrow.keep = f.arrow.keep.recycled()
	return nil
}

// render sets the kept field k of all records. values holds the field's values. It is empty if the stream lacks the column.
func (f *Frame) render(k int, values *Frame, n arrowNumber) error {
	m, i := &f.members, 0
	for _, s := range values.segments {
		for row := 0; i < s.end; i, row = i+1, row+1 {
			if values.Status(i) == record.Null {
				continue
			}
			start := len(m.rendered)
			m.rendered = n.appendJSON(m.rendered, s.row(values, i), row)
			if len(m.rendered) > f.limits.bytes {
				return tooLarge(0, "the columns of MILLRACE_KEEP_FIELDS have more than %d bytes as JSON: send smaller frames, or raise MILLRACE_FRAME_BYTES", f.limits.bytes)
			}
			m.kept[i*m.keep+k] = span{uint32(start), uint32(len(m.rendered))}
		}
	}
	return nil
}

// appendJSON appends the JSON text of a value. row is the row in its batch. It appends nothing for a number that JSON can't
// represent, such as infinity.
func (n arrowNumber) appendJSON(dst, value []byte, row int) []byte {
	switch n.kind {
	case noNumber:
		return jsonfield.AppendQuoted(dst, value)
	case boolean:
		return strconv.AppendBool(dst, value[0]>>(row&7)&1 == 1)
	}
	var wide [8]byte
	copy(wide[:], value)
	bits := binary.LittleEndian.Uint64(wide[:])
	switch n.kind {
	case unsigned:
		return strconv.AppendUint(dst, bits, 10)
	case signed:
		unused := 64 - 8*n.width
		return strconv.AppendInt(dst, int64(bits)<<unused>>unused, 10)
	}
	number := math.Float64frombits(bits)
	if n.width == 4 {
		number = float64(math.Float32frombits(uint32(bits)))
	}
	if math.IsNaN(number) || math.IsInf(number, 0) {
		return dst
	}
	return strconv.AppendFloat(dst, number, 'g', -1, 8*n.width)
}
