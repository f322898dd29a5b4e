package table

import (
	"bytes"
	"encoding/json"

	"millrace/internal/operator"
)

// annotation describes results that are the records themselves, each with an additional member for its result.
type annotation struct {
	name string // name of the member; empty if results aren't annotated
	key  []byte // the name as a JSON text
}

// Annotate sets the name of the member that contains a record's result in Annotated bodies. Reset keeps the name. name has only
// letters, digits and underscores. Keep must have been called with the records.
func (t *Table) Annotate(name string) {
	if t.annotation.name == name {
		return
	}
	t.annotation = annotation{name, []byte(`"` + name + `"`)}
}

// MaxName is the maximum length of the name of an annotation.
const MaxName = 64

// maxAnnotation is the maximum number of bytes around a result that annotates a record.
const maxAnnotation = len(`,"":}`) + MaxName

// sourceBytes returns the total length of the records [from, to).
func (t *Table) sourceBytes(from, to int) (sum int) {
	for i := from; i < to; i++ {
		sum += len(t.fields.of.Source(t.Number(i)))
	}
	return sum
}

// rows returns the rows of the Arrow stream that results in the format f annotate. It returns nil if the results annotate JSON
// objects or nothing.
func (t *Table) rows(f operator.Format) Rows {
	if rows, ok := t.fields.of.(Rows); ok && f == operator.Annotated && rows.IsArrow() {
		return rows
	}
	return nil
}

// appendRows appends an Arrow stream of the records [from, to) of a selection, with their results as a column. If the records can't be
// copied, appendRows appends nothing and sets t.fault.
func (t *Table) appendRows(dst []byte, rows Rows, from, to int) []byte {
	results := t.appendArrow(nil, from, to)
	stream, err := rows.AppendRows(dst, t.numbers[from:to], t.annotation.name, results)
	if err != nil {
		t.fault = err
		return dst
	}
	return stream
}

// appendAnnotated appends record i in one line, with its result as a member. The result replaces a member with the same name.
func (t *Table) appendAnnotated(dst []byte, i int) []byte {
	start, number := len(dst), t.Number(i)
	source := t.fields.of.Source(number)
	if t.fields.of.IsAnnotated(number) {
		source = without(source, t.annotation.name)
	}
	dst = AppendLine(dst, membersOf(source))
	if len(dst) > start+1 {
		dst = append(dst, ',')
	}
	dst = append(append(dst, t.annotation.key...), ':')
	return append(t.appendLine(dst, i), '}')
}

// membersOf returns the JSON object source without its closing brace and without the white space around it.
func membersOf(source []byte) []byte {
	const space = " \t\r\n"
	source = bytes.Trim(source, space)
	return bytes.TrimRight(source[:len(source)-1], space)
}

// without returns the JSON object source without the members called name. It returns source itself if source isn't an object.
func without(source []byte, name string) []byte {
	kept := []byte{'{'}
	d := json.NewDecoder(bytes.NewReader(source))
	if _, err := d.Token(); err != nil {
		return source
	}
	for d.More() {
		start := d.InputOffset()
		key, err := d.Token()
		if err != nil {
			return source
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return source
		}
		if key == name {
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, bytes.TrimLeft(source[start:d.InputOffset()], ", \t\r\n")...)
	}
	return append(kept, '}')
}
