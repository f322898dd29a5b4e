package frame

import (
	"slices"
	"sync"
	"unsafe"

	"millrace/internal/invariants"
	"millrace/internal/jsonfield"
	"millrace/internal/record"
)

// members reads members of records that are JSON values. It owns the memory of the values.
type members struct {
	on bool // whether the records are JSON values; all other fields have a meaning only then, except kept and keptFrom

	field, nullMissing, annotate bool // settings of the Splitter

	*scanner // set only during Splitter.Open

	body     []byte
	values   []byte // unescaped values of the field, back to back
	sources  []span // the whole records in the body, if there is a field
	tooLarge bool   // whether a value exceeds the limit of a record

	annotated []uint32 // the records that already have the member that annotated results add

	keep     int    // number of kept fields
	kept     []span // `keep` spans per record; each is a range of keptFrom
	keptFrom []byte // the body, or rendered
	rendered []byte // JSON texts of the kept columns of an Arrow stream
}

// scanner reads records, one at a time. It is larger than the index of most frames, so frames share scanners.
type scanner struct {
	selector jsonfield.Selector // finds the field (if there is one), then the member to annotate, and then the kept fields
	match    jsonfield.Match    // match of the record that is being read
}

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// span is a range of bytes. It is empty if a value is absent.
type span struct{ start, end uint32 }

// begin prepares for the records of a body.
func (m *members) begin(s *Splitter, body []byte) error {
	paths := make([]string, 0, jsonfield.MaxPaths)
	for _, path := range []string{s.Field, s.Annotate} {
		if path != "" {
			paths = append(paths, path)
		}
	}
	paths = append(paths, s.Keep...)
	m.scanner = scanners.Get().(*scanner)
	if !slices.Equal(m.selector.Paths(), paths) {
		selector, err := jsonfield.NewSelector(paths)
		if err != nil {
			return invalid(0, "MILLRACE_FIELD or MILLRACE_KEEP_FIELDS can't be used: %v", err)
		}
		m.selector = selector
	}
	m.on, m.field, m.nullMissing, m.annotate = s.Selects(), s.Field != "", s.NullMissing, s.Annotate != ""
	m.body, m.keptFrom, m.keep = body, body, len(s.Keep)
	if m.field {
		m.values = slices.Grow(m.values, len(body)) // a value is never longer than its JSON text
	}
	return nil
}

// end releases the scanner.
func (m *members) end() {
	if m.scanner != nil {
		scanners.Put(m.scanner)
		m.scanner = nil
	}
}

// keptValues is the largest memory for values that a frame keeps for the next message.
const keptValues = keptSlab

// reset removes the values and the reference to the body, and releases memory that is too large to keep.
func (m *members) reset() {
	invariants.Poison(m.values)
	invariants.Poison(m.rendered)
	m.on, m.tooLarge, m.body, m.keptFrom, m.keep = false, false, nil, nil, 0
	m.values, m.rendered, m.sources, m.annotated, m.kept = m.values[:0], m.rendered[:0], m.sources[:0], m.annotated[:0], m.kept[:0]
	if cap(m.values) > keptValues {
		m.values = nil
	}
	if cap(m.rendered) > keptValues {
		m.rendered = nil
	}
}

// size returns the size of m's memory in bytes.
func (m *members) size() int64 {
	return int64(cap(m.values) + cap(m.rendered) + 4*cap(m.annotated) + (cap(m.sources)+cap(m.kept))*int(unsafe.Sizeof(span{})))
}

// addJSON adds the record body[start:end], a JSON value.
func (f *Frame) addJSON(start, end int) {
	m := &f.members
	f.addScanned(start, end, m.selector.Scan(m.body[start:end], &m.match), start)
}

// addScanned adds the record body[start:end]. fault and m.match are the result of the record's scan, whose positions are relative
// to origin.
func (f *Frame) addScanned(start, end int, fault jsonfield.Fault, origin int) {
	m := &f.members
	status := record.OK
	if !fault.IsZero() || m.annotate && !m.match.Object {
		status = record.InvalidJSON
	}
	found := m.match.Values
	if !fault.IsZero() {
		found = nil
	}
	if m.field {
		m.sources = append(m.sources, span{uint32(start), uint32(end)})
		start = len(m.values)
		if status == record.OK {
			status = m.appendValue(found[0], origin)
		}
		end = len(m.values)
	}
	if m.annotate && found != nil && !found[len(found)-m.keep-1].IsAbsent() {
		m.annotated = append(m.annotated, uint32(len(f.starts)))
	}
	m.addKept(found, origin)
	f.starts = append(f.starts, uint32(start))
	f.ends = append(f.ends, uint32(end))
	if status == record.OK && end-start > f.limits.record {
		status, m.tooLarge = record.TooLarge, true
	}
	if status != record.OK {
		f.setStatus(len(f.starts)-1, status)
		return
	}
	f.bytes += end - start
}

// appendValue appends the unescaped value of the field to m.values. It returns the record's status.
func (m *members) appendValue(value jsonfield.Span, origin int) Status {
	text := m.body[origin+value.Start : origin+value.End]
	switch {
	case jsonfield.IsString(text):
		m.values = jsonfield.Append(m.values, text[1:len(text)-1])
		return record.OK
	case m.nullMissing:
		return record.Null
	}
	return record.NoField
}

// addKept adds the positions of a record's kept fields. found is nil if the record couldn't be read.
func (m *members) addKept(found []jsonfield.Span, origin int) {
	if found != nil {
		found = found[len(found)-m.keep:]
	}
	for i := range m.keep {
		s := span{}
		if found != nil && !found[i].IsAbsent() {
			s = span{uint32(origin + found[i].Start), uint32(origin + found[i].End)}
		}
		m.kept = append(m.kept, s)
	}
}

// Source returns the whole record as it is in the body. Without Splitter.Field, and for Arrow, it returns Record(i). The slice is valid
// until the next Open or Reset.
func (f *Frame) Source(i int) []byte {
	if m := &f.members; m.on && m.field {
		s := m.sources[i]
		return m.body[s.start:s.end:s.end]
	}
	return f.Record(i)
}

// IsAnnotated reports whether record i already has the member Splitter.Annotate. Call it only for records that are JSON objects.
func (f *Frame) IsAnnotated(i int) bool {
	_, found := slices.BinarySearch(f.members.annotated, uint32(i))
	return found
}

// Letter returns the body of the dead letter of record i, and its content type. For a JSON record, the body is Source(i). For a
// row of an Arrow stream, the body is a stream of this row with all columns. Otherwise, and if the row can't be copied, the body
// is Record(i) and the content type is empty.
//
// For the rows of an Arrow stream, only one goroutine may call Letter. The frame then keeps up to Splitter.MaxBytes
// of decompressed buffers until the next Open or Reset.
func (f *Frame) Letter(i int) (body []byte, contentType string) {
	if f.members.on {
		return f.Source(i), typeJSON
	}
	if f.arrow.body != nil {
		if row, ok := f.letter(i); ok {
			return row, ContentTypeOf(Arrow)
		}
	}
	return f.Record(i), ""
}

// LetterBytes returns the size of the decompressed buffers that Letter has kept for the rows of an Arrow stream.
func (f *Frame) LetterBytes() int64 {
	if f.arrow.rows == nil {
		return 0
	}
	return int64(f.arrow.rows.bytes)
}

// typeJSON is the content type of a JSON value.
const typeJSON = "application/json"

// Kept returns the JSON text of field k of Splitter.Keep in record i, as it is in the body. It returns nil if the record doesn't
// have the field. The slice is valid until the next Open or Reset.
func (f *Frame) Kept(i, k int) []byte {
	m := &f.members
	if s := m.kept[i*m.keep+k]; s.start < s.end {
		return m.keptFrom[s.start:s.end:s.end]
	}
	return nil
}

// KeptBytes returns the total length of all kept fields.
func (f *Frame) KeptBytes() (bytes int64) {
	for _, s := range f.members.kept {
		bytes += int64(s.end - s.start)
	}
	return bytes
}

// Fault describes why record i has the status InvalidJSON. It scans the record again. It returns an empty text for any other record.
func (f *Frame) Fault(i int) string {
	m := &f.members
	if !m.on || f.Status(i) != record.InvalidJSON {
		return ""
	}
	var s scanner
	if fault := s.selector.Scan(f.Source(i), &s.match); !fault.IsZero() {
		return fault.Error()
	}
	return "the record is valid JSON, but not an object"
}

// splitArray indexes the elements of a JSON array.
func (f *Frame) splitArray(body []byte) error {
	m := &f.members
	pos := skipBlank(body, 0)
	if pos == len(body) || body[pos] != '[' {
		return f.misframed(pos, "the body isn't a JSON array")
	}
	if pos = skipBlank(body, pos+1); pos < len(body) && body[pos] == ']' {
		return f.endArray(body, pos+1)
	}
	for {
		if f.isFull() {
			return f.tooMany(pos)
		}
		end, fault := m.selector.ScanValue(body, pos, &m.match)
		if fault.Soft {
			end, fault = jsonfield.SoftEnd(body, pos, fault)
		}
		if !fault.IsZero() && !fault.Soft {
			return f.misframed(fault.Offset, "the JSON array is invalid (%s)", fault.Text)
		}
		if m.on {
			f.addScanned(pos, end, fault, 0)
		} else {
			f.add(pos, end)
		}
		pos = skipBlank(body, end)
		switch {
		case pos < len(body) && body[pos] == ']':
			return f.endArray(body, pos+1)
		case pos == len(body) || body[pos] != ',':
			return f.misframed(pos, "a comma or ] is missing in the JSON array")
		}
		pos = skipBlank(body, pos+1)
	}
}

// endArray checks that only white space follows the array.
func (f *Frame) endArray(body []byte, pos int) error {
	if pos = skipBlank(body, pos); pos < len(body) {
		return f.misframed(pos, "%d bytes follow the JSON array", len(body)-pos)
	}
	return nil
}

// skipBlank returns the position of the first byte from pos on that isn't JSON's white space.
func skipBlank(body []byte, pos int) int { return pos + jsonfield.Blank(body[pos:]) }
