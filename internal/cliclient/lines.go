package cliclient

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/arrowipc"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/pull"
	"millrace/internal/operator"
)

// maxBody is the maximum size of a decompressed result, in bytes.
const maxBody = 1 << 30

// decoder converts the bodies of results to JSON.
type decoder struct {
	parse        func(spec string) (operator.Operator, error)
	decompressor compression.Decompressor
}

// entry is a record of a result.
type entry struct {
	number   int             // index of the record in the input, or unnumbered
	result   json.RawMessage // the object that a JSON result has for the record
	document json.RawMessage // the document without its result; nil unless the result is annotated
}

// unnumbered is the number of an entry of a result without record numbers. Its records follow one another.
const unnumbered = -1

// records returns the records of a result. unknown lists the operators whose values stay undecoded, because parse fails or returns
// another version.
func (d *decoder) records(h nats.Header, body []byte) (records []entry, unknown []string, err error) {
	encoding, err := compression.FromHeader(h.Get(client.HeaderContentEncoding))
	if err != nil {
		return nil, nil, err
	}
	if encoding != compression.None && len(body) > 0 {
		if body, err = d.decompressor.Append(nil, encoding, body, maxBody); err != nil {
			return nil, nil, err
		}
	}
	contentType := h.Get(client.HeaderContentType)
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, nil, fmt.Errorf("the result has the Content-Type %q: %w", contentType, err)
	}
	switch media {
	case client.TypeJSON, client.TypeNDJSON:
		if name := h.Get(client.HeaderAnnotation); name != "" {
			records, err = documents(body, name)
		} else {
			records, err = lines(body)
		}
	case client.TypeBinary:
		records, unknown, err = d.binary(body)
	case client.TypeArrow:
		if name := h.Get(client.HeaderAnnotation); name != "" && len(body) > 0 {
			if body, err = frame.Results(body, name); err != nil {
				return nil, nil, err
			}
		}
		records, unknown, err = d.arrow(body)
	default:
		err = fmt.Errorf("the result has the Content-Type %q, which this version can't read", contentType)
	}
	return records, unknown, err
}

// lines checks a JSON result and returns its lines.
func lines(body []byte) (records []entry, err error) {
	for line, err := range client.Lines(body) {
		if err != nil {
			return nil, err
		}
		records = append(records, entry{number: numberOf(line)})
	}
	i := 0
	for line := range bytes.Lines(body) {
		records[i].result = bytes.TrimSpace(line)
		i++
	}
	return records, nil
}

// documents checks an annotated result and returns its documents. name is the member with the results.
func documents(body []byte, name string) (records []entry, err error) {
	for d, err := range client.Documents(body, name) {
		if err != nil {
			return nil, err
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(d.JSON, &members); err != nil {
			return nil, err
		}
		records = append(records, entry{numberOf(d.Line), members[name], original(d.JSON, name, members[name])})
	}
	return records, nil
}

// original returns a document without its annotation, which a worker appends as the last member.
func original(document []byte, name string, annotation json.RawMessage) json.RawMessage {
	before, found := bytes.CutSuffix(document, fmt.Appendf(nil, "%q:%s}", name, annotation))
	if !found {
		return document
	}
	return append(bytes.Clone(bytes.TrimSuffix(before, []byte(","))), '}')
}

// numberOf returns the number of a record in JSON.
func numberOf(line client.Line) int {
	if line.Record == nil {
		return unnumbered
	}
	return *line.Record
}

// binary returns the records of a result in the binary format.
func (d *decoder) binary(body []byte) (records []entry, unknown []string, err error) {
	r, err := client.Decode(body)
	if err != nil {
		return nil, nil, err
	}
	ops := make([]operator.Operator, len(r.Operators))
	for k, o := range r.Operators {
		// A different stride means that the result has another version of the operator.
		if op, err := d.parse(o.Spec); err == nil && op.Stride() == o.Stride {
			ops[k] = op
		} else {
			unknown = append(unknown, o.Spec)
		}
	}
	for i := range r.Len() {
		row := r.Record(i)
		number, o := unnumbered, object{}
		if r.Version == 3 {
			number = r.Number(i)
			o.put("record", encoded(number))
		}
		if r.Version == 1 {
			o.put("bytes", encoded(r.PayloadBytes))
		}
		if row.Status != client.OK {
			o.fail(row.Status.String())
			records = append(records, entry{number: number, result: o.end()})
			continue
		}
		for k, op := range ops {
			value := slices.Concat(row.Value(k), row.Strings(k))
			if op == nil {
				o.put(r.Operators[k].Name(), raw(value))
			} else {
				o.put(op.Name(), op.AppendJSON(nil, value))
			}
		}
		records = append(records, entry{number: number, result: o.end()})
	}
	return records, unknown, nil
}

// arrow returns the records of a result in the Arrow format.
func (d *decoder) arrow(body []byte) (records []entry, unknown []string, err error) {
	r, err := arrow.Decode(body)
	if err != nil {
		return nil, nil, err
	}
	kept := slices.IndexFunc(r.Columns, func(c arrow.Column) bool { return c.Spec == "" && strings.HasPrefix(c.Name, keptPrefix) })
	if kept < 0 {
		kept = len(r.Columns)
	}
	var ops []columns
	for rest := r.Columns[:kept]; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Name == rest[0].Name && rest[n].Spec == rest[0].Spec {
			n++
		}
		c := d.columns(rest[:n])
		if ops, rest = append(ops, c), rest[n:]; c.op == nil {
			unknown = append(unknown, cmp.Or(c.all[0].Spec, c.all[0].Name))
		}
	}
	for i := range r.Len() {
		number, o := unnumbered, object{}
		if r.Numbers != nil {
			number = int(r.Numbers[i])
			o.put("record", encoded(number))
		}
		o.put("bytes", encoded(r.Bytes[i]))
		if kept := r.Columns[kept:]; len(kept) > 0 {
			o.put("fields", fieldsOf(kept, i))
		}
		if !r.OK(i) {
			o.fail(r.Statuses[i])
			records = append(records, entry{number: number, result: o.end()})
			continue
		}
		for _, c := range ops {
			if err := c.put(&o, i); err != nil {
				return nil, nil, fmt.Errorf("record %d: %w", i, err)
			}
		}
		records = append(records, entry{number: number, result: o.end()})
	}
	return records, unknown, nil
}

// keptPrefix is the prefix of the columns with kept fields, which are the last columns of an Arrow result.
const keptPrefix = "fields."

// fieldsOf returns an object with the kept fields of record i, which are JSON texts.
func fieldsOf(kept []arrow.Column, i int) json.RawMessage {
	o := object{}
	for k := range kept {
		if value := kept[k].Bytes(i); value != nil {
			o.put(strings.TrimPrefix(kept[k].Name, keptPrefix), value)
		}
	}
	return o.end()
}

// columns holds the columns of one operator in an Arrow result.
type columns struct {
	all    []arrow.Column
	op     operator.Operator // nil for an unknown operator or another version with other columns
	layout arrowipc.Column   // columns that op writes
}

func (d *decoder) columns(all []arrow.Column) columns {
	op, err := d.parse(all[0].Spec)
	if err != nil {
		return columns{all: all}
	}
	layout := operator.ArrowColumns([]operator.Operator{op})[0]
	if !slices.EqualFunc(all, layout.Types(), func(c arrow.Column, want string) bool {
		return strings.TrimPrefix(c.Field+" "+c.Type.String(), " ") == want
	}) {
		return columns{all: all}
	}
	return columns{all, op, layout}
}

// put adds the operator's value of record i to o. For an unknown operator, it adds the value of each column.
func (c *columns) put(o *object, i int) error {
	if c.op != nil {
		values := make([][]byte, len(c.all))
		for k := range c.all {
			values[k] = c.all[k].Bytes(i)
		}
		value, ok := c.layout.Join(values)
		if !ok {
			return fmt.Errorf("the operator %s has no value", c.op.Name())
		}
		o.put(c.op.Name(), c.op.AppendJSON(nil, value))
		return nil
	}
	for k := range c.all {
		column := &c.all[k]
		name := strings.TrimSuffix(column.Name+"."+column.Field, ".")
		if numbers := column.Value(i); numbers != nil {
			o.put(name, encoded(numbers))
		} else if value := column.Bytes(i); value != nil {
			o.put(name, raw(value))
		}
	}
	return nil
}

// object is a JSON object that keeps the order of its keys.
type object struct{ text []byte }

// put adds a key and its value to the end of the object.
func (o *object) put(key string, value []byte) {
	separator := byte(',')
	if len(o.text) == 0 {
		separator = '{'
	}
	o.text = append(append(o.text, separator), encoded(key)...)
	o.text = append(append(o.text, ':'), value...)
}

// fail adds the key "error" with the reason why a record has no values.
func (o *object) fail(reason string) {
	o.put("error", encoded(map[string]string{"reason": reason}))
}

// end closes the object and returns its text.
func (o *object) end() json.RawMessage {
	if len(o.text) == 0 {
		return json.RawMessage("{}")
	}
	return append(o.text, '}')
}

// raw returns value as base64 in a JSON object, such as {"base64":"AP8="}.
func raw(value []byte) json.RawMessage {
	return encoded(map[string][]byte{"base64": value})
}

// encoded returns value as JSON. It panics if JSON can't represent value.
func encoded(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // impossible for strings, numbers, and lists and maps of them
	}
	return text
}

// Line is a line of output. Exactly one of Result, DeadLetter and Records is set.
type Line struct {
	Stream   string `json:"stream"`   // name of the input's stream
	Sequence uint64 `json:"sequence"` // sequence of the input in its stream
	Subject  string `json:"subject"`  // subject of the input

	Record   *uint64         `json:"record,omitempty"`   // index of the record in its frame; absent if the input isn't a frame
	Records  *uint64         `json:"records,omitempty"`  // 0 for a result without records; otherwise absent
	Filtered *uint64         `json:"filtered,omitempty"` // number of records that a filter left out of a result without records
	Result   json.RawMessage `json:"result,omitempty"`   // the object that a JSON result has for the record

	Document    any  `json:"document,omitempty"`     // document of an annotated result, without the result, or its first bytes as a string; only on request
	DocumentCut bool `json:"document_cut,omitempty"` // whether Document is only the first bytes, as a string

	DeadLetter *DeadLetter `json:"dead_letter,omitempty"`
}

// DeadLetter describes an input, or one record of it, that has no result.
type DeadLetter struct {
	Reason     string `json:"reason"`
	Error      string `json:"error,omitempty"`
	Operator   string `json:"operator,omitempty"`
	Deliveries uint64 `json:"deliveries,omitempty"`
	Bytes      int    `json:"bytes"`             // size of the stored body
	Omitted    string `json:"omitted,omitempty"` // omitted parts, as in client.HeaderOmitted

	Payload    any  `json:"payload,omitempty"`     // a string if it is UTF-8, otherwise {"base64": "..."}; only on request
	PayloadCut bool `json:"payload_cut,omitempty"` // Payload has only the first bytes
	// PayloadSequence is the sequence of the message that holds the payload or the whole input, in the stream of the
	// dead letter.
	PayloadSequence uint64 `json:"payload_sequence,omitempty"`
}

// newLine returns a line about the input that the headers name.
func newLine(h nats.Header) Line {
	l := Line{Stream: h.Get(client.HeaderStream), Sequence: Number(h, client.HeaderSequence), Subject: h.Get(client.HeaderSubject)}
	if h.Get(client.HeaderRecord) != "" {
		at := Number(h, client.HeaderRecord)
		l.Record = &at
	}
	return l
}

func newDeadLetter(m *pull.Message) *DeadLetter {
	h := m.Headers()
	return &DeadLetter{
		Reason: h.Get(client.HeaderReason), Error: h.Get(client.HeaderError), Operator: h.Get(client.HeaderOperator),
		Deliveries: Number(h, client.HeaderDeliveries), Bytes: len(m.Data()), Omitted: h.Get(client.HeaderOmitted),
		PayloadSequence: Number(h, client.HeaderPayloadSequence),
	}
}

// show sets Payload to the first bytes of payload. limit is the maximum number of bytes.
func (d *DeadLetter) show(payload []byte, limit int) {
	if len(payload) == 0 && d.Omitted != "" {
		return // the payload is in another message or not stored
	}
	text := utf8.Valid(payload)
	if d.PayloadCut = len(payload) > limit; d.PayloadCut {
		payload = cut(payload, limit, text)
	}
	if d.Payload = string(payload); !text {
		d.Payload = map[string][]byte{"base64": payload}
	}
}

// show sets Document. limit is the maximum number of bytes.
func (l *Line) show(document json.RawMessage, limit int) {
	l.Document = document
	if l.DocumentCut = len(document) > limit; l.DocumentCut {
		l.Document = string(cut(document, limit, true))
	}
}

// cut returns the first bytes of body, at most limit. It doesn't divide a character of a text.
func cut(body []byte, limit int, text bool) []byte {
	for text && limit > 0 && !utf8.RuneStart(body[limit]) {
		limit--
	}
	return body[:limit]
}

// Number returns the value of a numeric header, or 0 if the header has no valid number.
func Number(h nats.Header, name string) uint64 {
	n, _ := strconv.ParseUint(h.Get(name), 10, 64)
	return n
}
