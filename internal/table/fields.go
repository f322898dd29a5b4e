package table

import (
	"bytes"
	"encoding/json"
	"slices"

	"millrace/internal/arrowipc"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// Fields provides the records of a message, and the fields that results contain. *frame.Frame implements it.
type Fields interface {
	// Source returns record i as it is in the message.
	Source(i int) []byte

	// IsAnnotated reports whether record i, a JSON object, already has the member that an annotated result adds.
	IsAnnotated(i int) bool

	// Kept returns the JSON text of field k of record i, or nil if the record doesn't have the field.
	Kept(i, k int) []byte
}

// Rows are the Fields of an Arrow stream. The annotated results of such a stream are also streams. *frame.Frame implements it.
type Rows interface {
	IsArrow() bool // if it returns false, the other methods must not be called

	// AppendRows appends a stream with some records and the columns of results, an Arrow result of the same records.
	AppendRows(dst []byte, records []uint32, name string, results []byte) ([]byte, error)

	// AppendHead appends the schema and the dictionaries, which every stream with records contains.
	AppendHead(dst []byte, name string, results []byte) ([]byte, error)

	// MaxRows returns the maximum total length of all streams of a message in bytes, without the results.
	MaxRows() int
}

// fields are the kept fields of a message's records.
type fields struct {
	names   []string // empty without kept fields
	named   []string // the names for which keys was computed
	keys    []string // names as JSON texts with a colon
	of      Fields
	omitted map[int]bool // records whose fields Shrink removed
	numbers []uint32     // in a selection: the number of each record in the message
}

// Keep adds the fields with the given names to the results. of.Kept(i, k) is the field names[k] of record i, and must stay valid
// until the next Reset. Reset removes the fields.
func (t *Table) Keep(names []string, of Fields) {
	f := &t.fields
	f.names, f.of = names, of
	if slices.Equal(f.named, names) {
		return
	}
	f.named, f.keys = names, f.keys[:0]
	for _, name := range names {
		key, err := json.Marshal(name)
		if err != nil {
			panic("table: " + err.Error()) // every string has a JSON text
		}
		f.keys = append(f.keys, string(key)+":")
	}
}

// reset removes the fields.
func (f *fields) reset() {
	f.names, f.of, f.numbers = nil, nil, nil
	clear(f.omitted)
}

// kept returns the JSON text of field k of record i, or nil.
func (f *fields) kept(i, k int) []byte {
	if f.numbers != nil {
		i = int(f.numbers[i])
	}
	if f.omitted[i] {
		return nil
	}
	return f.of.Kept(i, k)
}

// bytesOf returns the total length of the fields of the records [from, to).
func (f *fields) bytesOf(from, to int) (bytes int) {
	for k := range f.names {
		for i := from; i < to; i++ {
			bytes += len(f.kept(i, k))
		}
	}
	return bytes
}

// Shrink makes the result of record i smaller, because it alone exceeds a message. A record that is OK gets the status TooLarge.
// Any other record loses its kept fields. Shrink returns false if the result can't become smaller.
func (t *Table) Shrink(i int) bool {
	f := &t.fields
	switch {
	case t.statuses[i] == record.OK:
		t.SetStatus(i, record.TooLarge)
		return true
	case len(f.names) == 0 || f.omitted[i]:
		return false
	case f.omitted == nil:
		f.omitted = map[int]bool{}
	}
	f.omitted[i] = true
	return true
}

// appendJSON appends a member with the fields of record i, without line breaks. It appends nothing without kept fields.
func (f *fields) appendJSON(dst []byte, i int) []byte {
	if len(f.names) == 0 {
		return dst
	}
	dst = append(dst, `,"fields":{`...)
	first := true
	for k, key := range f.keys {
		value := f.kept(i, k)
		if value == nil {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, key...)
		dst = AppendLine(dst, value)
	}
	return append(dst, '}')
}

// AppendLine appends a valid JSON text without its line breaks, which become spaces. The result has the same length.
func AppendLine(dst, text []byte) []byte {
	start := len(dst)
	dst = append(dst, text...)
	for _, lineBreak := range "\n\r" { // a valid text has them only between its tokens
		rest := dst[start:]
		for n := bytes.IndexByte(rest, byte(lineBreak)); n >= 0; n = bytes.IndexByte(rest, byte(lineBreak)) {
			rest[n], rest = ' ', rest[n+1:]
		}
	}
	return dst
}

// maxEscape is the maximum number of bytes of a name's byte in JSON.
const maxEscape = len("\\u0000")

// MaxFields returns the maximum number of bytes that kept fields with the given names add to MaxBytes and to MaxSize. The fields
// of all records have fieldBytes bytes in total.
func MaxFields(f operator.Format, names []string, records, fieldBytes int) int {
	if len(names) == 0 {
		return 0
	}
	if f == operator.Arrow {
		return arrowipc.MaxFields(names, records, fieldBytes)
	}
	perRecord := len(`,"fields":{}`)
	for _, name := range names {
		perRecord += maxEscape*len(name) + len(`"":,`)
	}
	return records*perRecord + fieldBytes
}

// maxBytes returns the maximum length of a body with the records [from, to).
func (t *Table) maxBytes(f operator.Format, from, to int) int {
	if rows := t.rows(f); rows != nil {
		return rows.MaxRows() + t.maxBytes(operator.Arrow, from, to)
	}
	limit := MaxBytes(f, t.ops, to-from, t.strings.bytesOf(from, to)) + MaxFields(f, t.fields.names, to-from, t.fields.bytesOf(from, to))
	if f == operator.Annotated {
		limit += t.sourceBytes(from, to)
	}
	return limit
}
