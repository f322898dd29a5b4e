package table

import (
	"bytes"
	"encoding/json"
	"sync"

	"millrace/internal/jsonfield"
	"millrace/internal/operator"
)

// annotation describes results that are the records themselves, each with one more member that has its result.
type annotation struct {
	name string // name of the member; empty if results aren't annotated
	key  []byte // the name as a JSON text

	member jsonfield.Selector // finds the member
}

// matches contains *jsonfield.Match, which is larger than many tables.
var matches = sync.Pool{New: func() any { return new(jsonfield.Match) }}

// Annotate makes Annotated bodies possible: the member called name has the result of a record. Reset keeps it. name has only letters,
// digits and underscores. Keep must have been called with the records.
func (t *Table) Annotate(name string) {
	if t.annotation.name == name {
		return
	}
	member, err := jsonfield.NewSelector([]string{name})
	if err != nil && name != "" {
		panic("table: " + err.Error()) // the name is a path
	}
	t.annotation = annotation{name, []byte(`"` + name + `"`), member}
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

// rows returns the rows of an Arrow stream that results in the format f annotate, or nil if they annotate JSON objects or nothing.
func (t *Table) rows(f operator.Format) Rows {
	if rows, ok := t.fields.of.(Rows); ok && f == operator.Annotated && rows.IsArrow() {
		return rows
	}
	return nil
}

// appendRows appends an Arrow stream of the records [from, to) of a selection, with their results as a column. If they can't be copied,
// it appends nothing, and sets t.fault.
func (t *Table) appendRows(dst []byte, rows Rows, from, to int) []byte {
	results := t.appendArrow(nil, from, to)
	stream, err := rows.AppendRows(dst, t.numbers[from:to], t.annotation.name, results)
	if err != nil {
		t.fault = err
		return dst
	}
	return stream
}

// appendAnnotated appends record i in one line, with its result as a member. A member with the same name is replaced.
func (t *Table) appendAnnotated(dst []byte, i int) []byte {
	start := len(dst)
	dst = AppendLine(dst, t.annotation.members(t.fields.of.Source(t.Number(i))))
	if len(dst) > start+1 {
		dst = append(dst, ',')
	}
	dst = append(append(dst, t.annotation.key...), ':')
	return append(t.appendLine(dst, i), '}')
}

// members returns the JSON object source without its closing brace and without members that have the annotation's name.
func (a *annotation) members(source []byte) []byte {
	if a.mayBeIn(source) {
		if object, err := without(source, a.name); err == nil { // an error means that the record isn't valid JSON; the caller has excluded such records
			source = object
		}
	}
	const space = " \t\r\n"
	source = bytes.Trim(source, space)
	return bytes.TrimRight(source[:len(source)-1], space)
}

// mayBeIn reports whether the JSON object source may have a member with the annotation's name. It scans only objects in which the name may
// occur, because a name may have escapes.
func (a *annotation) mayBeIn(source []byte) bool {
	if !bytes.Contains(source, a.key) && !bytes.Contains(source, []byte(`\u`)) {
		return false
	}
	m := matches.Get().(*jsonfield.Match)
	defer matches.Put(m)
	fault := a.member.Scan(source, m)
	return !fault.IsZero() || !m.Values[0].IsAbsent()
}

// without returns the JSON object source without the members called name. It returns source itself if there is none.
func without(source []byte, name string) ([]byte, error) {
	kept := []byte{'{'}
	found := false
	d := json.NewDecoder(bytes.NewReader(source))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		start := d.InputOffset()
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if key == name {
			found = true
			continue
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, bytes.TrimLeft(source[start:d.InputOffset()], ", \t\r\n")...)
	}
	if !found {
		return source, nil
	}
	return append(kept, '}'), nil
}
