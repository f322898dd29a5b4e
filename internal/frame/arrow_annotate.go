package frame

import (
	"sort"

	flatbuffers "github.com/google/flatbuffers/go"
)

// This file writes selected rows of an Arrow stream as another stream, with an additional column for their results.

// IsArrow reports whether the message is an Arrow stream.
func (f *Frame) IsArrow() bool { return f.arrow.body != nil }

// RowFactor is the memory for a stream of selected rows, as a multiple of the length of the rows in the message. It covers the
// decompressed buffers, twice the buffers of a batch, and twice the stream.
const RowFactor = 5

// sharedFactor bounds the streams of a message, as a multiple of the length of its rows. Views may share bytes, and each part repeats the
// dictionaries.
const sharedFactor = 2

// batchBytes is the assumed length of the results' metadata in a record batch. Each batch of a message becomes a batch of the stream.
const batchBytes = 4 << 10

// SourceBytes returns the memory of a message's records in an annotated result, in bytes. body is the length of the message.
func (s *Splitter) SourceBytes(f *Frame, body int) int64 {
	if s.Annotate != "" && f.IsArrow() {
		return RowFactor * int64(f.arrow.rows.size)
	}
	return int64(body)
}

// MaxRows returns the maximum total length in bytes of the streams that AppendRows writes for one message, without the results.
func (f *Frame) MaxRows() int { return sharedFactor * f.arrow.rows.size }

// prepareRows checks that AppendRows can copy rows of all columns of a stream. It is the last check of Open.
func (f *Frame) prepareRows() (err error) {
	defer func() {
		if recover() != nil { // flatbuffers panics on invalid metadata
			err = invalid(0, "the metadata of an Arrow message is not valid: %s", adviceOnStream)
		}
	}()
	rows, err := findRows(f.arrow.body)
	if err != nil {
		return err
	}
	rows.limit = f.limits.bytes
	for field := range tablesIn(&rows.schema, schemaFields) {
		if what := uncopied(&field); what != "" {
			return invalid(0, "the column %s has the type %s, whose rows can't be copied: leave the column out, or set MILLRACE_RESULT_FORMAT=arrow",
				quote(nameOf(&field)), what)
		}
	}
	rows.size = len(f.arrow.body)
	for i := range rows.batches {
		size, err := rows.batches[i].inflatedSize(f.arrow.body, f.limits.bytes)
		if err != nil {
			return err
		}
		if rows.size += size + batchBytes; rows.size > f.limits.bytes+batchBytes {
			return tooLarge(rows.batches[i].message.at, "the Arrow stream has more than %d bytes, with its decompressed buffers and %d bytes for each record batch: send smaller frames or larger batches, or raise MILLRACE_FRAME_BYTES", f.limits.bytes, batchBytes)
		}
	}
	f.arrow.rows = rows
	return nil
}

// uncopied returns the name of a type within a column whose rows can't be copied, or an empty text.
func uncopied(field *flatbuffers.Table) string {
	if field.Offset(fieldDictionary) != 0 {
		return "" // the dictionary is copied as a whole
	}
	switch typeOf(field) {
	case typeUnion:
		return "union"
	case typeRunEndEncoded:
		return "run-end encoded"
	case typeListView, typeLargeListView:
		return "list view"
	}
	for child := range tablesIn(field, fieldChildren) {
		if what := uncopied(&child); what != "" {
			return what
		}
	}
	return ""
}

// inflatedSize returns the length of all decompressed buffers of a batch. It is 0 if the batch isn't compressed, and above limit if the
// length exceeds limit.
func (a *arrowBatch) inflatedSize(body []byte, limit int) (total int, err error) {
	if _, compressed, err := a.message.codec(); err != nil || !compressed {
		return 0, err
	}
	const size = 16
	_, n := vectorIn(&a.message.header, batchBuffers, size)
	for i := range n {
		b, err := a.message.buffer(i)
		if err != nil {
			return 0, err
		}
		inflated, err := b.inflatedSize(body)
		if err != nil {
			return 0, err
		}
		if inflated > int64(limit-total) {
			return limit + 1, nil
		}
		total += int(inflated)
	}
	return total, nil
}

// AppendRows appends an Arrow stream with the given records of a message. The message must be an Arrow stream, split with
// Splitter.Annotate. records must be in ascending order. The stream has all columns of the message, followed by the struct called name,
// which replaces columns with that name. The children of the struct are the columns of results, an Arrow stream of one batch with a row
// for each record. The message's dictionaries are copied unchanged.
//
// The stream depends only on the arguments and the message. Errors are of type *Error. Only one goroutine may call AppendRows or Letter.
func (f *Frame) AppendRows(dst []byte, records []uint32, name string, results []byte) (stream []byte, err error) {
	return f.annotate(name, results, func(a *annotator) []byte {
		dst := a.appendSchema(dst)
		for from := 0; from < len(records); {
			to, end := from, f.Records()
			n := a.rows.batchOf(int(records[from]))
			if n+1 < len(a.rows.batches) {
				end = a.rows.batches[n+1].first
			}
			for to < len(records) && int(records[to]) < end {
				to++
			}
			dst = a.appendBatch(dst, n, records[from:to], from)
			from = to
		}
		return append(dst, endOfStream...)
	})
}

// AppendHead appends the start that all streams of AppendRows have in common: the schema and the dictionaries.
func (f *Frame) AppendHead(dst []byte, name string, results []byte) (head []byte, err error) {
	return f.annotate(name, results, func(a *annotator) []byte {
		return a.appendDictionaries(a.appendSchema(dst), len(a.rows.dictionaries))
	})
}

// annotate calls do and returns its result. It turns a panic of do into an error.
func (f *Frame) annotate(name string, results []byte, do func(*annotator) []byte) (out []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil { // rowCopy and flatbuffers panic on an invalid batch
			out, err = nil, invalid(0, "the rows can't be copied (%s): %s", faultText(cause), adviceOnStream)
		}
	}()
	found, err := findRows(results)
	if err != nil {
		return nil, err
	}
	found.limit = len(results)
	a := &annotator{rows: f.arrow.rows, results: found, name: name}
	a.choose()
	return do(a), nil
}

// faultText returns the text of a panic during a copy.
func faultText(cause any) string {
	if fault, ok := cause.(rowFault); ok {
		return string(fault)
	}
	return "the metadata is not valid"
}

// batchOf returns the index of the batch with record i.
func (r *arrowRows) batchOf(i int) int {
	return sort.Search(len(r.batches), func(n int) bool { return r.batches[n].first > i }) - 1
}

// copier returns a rowCopy for batch n, with an empty new batch.
func (r *arrowRows) copier(n, limit int) rowCopy {
	if r.of != n {
		r.inflated, r.of, r.bytes = nil, n, 0
	}
	return rowCopy{batch: &r.batches[n], rows: r, body: r.body, limit: limit}
}

// annotator writes a stream of selected rows with their results.
type annotator struct {
	rows, results *arrowRows
	name          string

	fields  []flatbuffers.Table // columns of the message
	kept    []bool              // whether the stream has the column
	visited int                 // number of columns and children
	ids     map[int64]bool      // dictionaries of the kept columns
	written int                 // number of the dictionaries that the stream already has or doesn't need
}

// choose sets fields, kept and ids.
func (a *annotator) choose() {
	a.ids = map[int64]bool{}
	for field := range tablesIn(&a.rows.schema, schemaFields) {
		keep := string(nameOf(&field)) != a.name
		a.fields, a.kept = append(a.fields, field), append(a.kept, keep)
		if keep {
			a.addDictionaries(&field, 0)
		}
	}
}

// addDictionaries adds the dictionaries of a field and its children to ids.
func (a *annotator) addDictionaries(field *flatbuffers.Table, depth int) {
	a.visited++
	check(a.visited <= maxArrowFields && depth <= maxArrowNesting, "the schema has too many columns, or they are nested too deeply")
	if encoding, ok := tableIn(field, fieldDictionary); ok {
		const id = 4
		a.ids[encoding.GetInt64Slot(id, 0)] = true
	}
	for child := range tablesIn(field, fieldChildren) {
		a.addDictionaries(&child, depth+1)
	}
}

// appendBatch appends records of batch n. at is the row of the first record in the results.
func (a *annotator) appendBatch(dst []byte, n int, records []uint32, at int) []byte {
	c := a.rows.copier(n, sharedFactor*a.rows.size)
	dst = a.appendDictionaries(dst, c.batch.dictionaries)
	var set rowSet
	for _, i := range records {
		row := int(i) - c.batch.first
		set.add(row, row+1)
	}
	for i := range a.fields {
		before := c.out
		if c.copyField(&a.fields[i], &set); !a.kept[i] {
			c.out = before
		}
	}
	r := a.results.copier(0, c.limit+sharedFactor*len(a.results.body))
	r.out = c.out
	r.out.nodes = append(r.out.nodes, int64(set.rows), 0)
	r.add(nil)
	var rows rowSet
	rows.add(at, at+len(records))
	for field := range tablesIn(&a.results.schema, schemaFields) {
		r.copyField(&field, &rows)
	}
	return r.out.appendMessage(dst, set.rows)
}

// appendDictionaries appends the dictionaries of the kept columns in the first n messages, except dictionaries that the stream already has.
func (a *annotator) appendDictionaries(dst []byte, n int) []byte {
	for ; a.written < n; a.written++ {
		if d := &a.rows.dictionaries[a.written]; a.ids[d.id] {
			dst = append(dst, d.message...)
		}
	}
	return dst
}
