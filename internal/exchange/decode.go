package exchange

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/internal/arrowipc"
	"millrace/internal/compression"
	"millrace/internal/operator"
	"millrace/internal/record"
)

// mostBody bounds a result after decompression, in bytes.
const mostBody = 1 << 30

// decoder turns the bodies of results into JSON, whatever their format.
type decoder struct {
	parse        func(spec string) (operator.Operator, error)
	decompressor compression.Decompressor
}

// records returns the result of each record as a JSON object. unknown has the operators that parse doesn't know.
func (d *decoder) records(h nats.Header, body []byte) (records []json.RawMessage, unknown []string, err error) {
	encoding, err := compression.FromHeader(h.Get(client.HeaderContentEncoding))
	if err != nil {
		return nil, nil, err
	}
	if encoding != compression.None && len(body) > 0 {
		if body, err = d.decompressor.Append(nil, encoding, body, mostBody); err != nil {
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
		records, err = lines(body)
	case client.TypeBinary:
		records, unknown, err = d.binary(body)
	case client.TypeArrow:
		records, unknown, err = d.arrow(h.Get(client.HeaderOperators), body)
	default:
		err = fmt.Errorf("the result has the Content-Type %q, which this version can't read", contentType)
	}
	return records, unknown, err
}

// lines returns the lines of a result in JSON.
func lines(body []byte) (records []json.RawMessage, err error) {
	for _, err := range client.Lines(body) {
		if err != nil {
			return nil, err
		}
	}
	for line := range bytes.Lines(body) {
		records = append(records, json.RawMessage(bytes.TrimSpace(line)))
	}
	return records, nil
}

// binary returns the records of a result in binary.
func (d *decoder) binary(body []byte) (records []json.RawMessage, unknown []string, err error) {
	r, err := client.Decode(body)
	if err != nil {
		return nil, nil, err
	}
	ops := make([]operator.Operator, len(r.Operators))
	for k, o := range r.Operators {
		if ops[k] = d.operator(o.Spec, o.Stride); ops[k] == nil {
			unknown = append(unknown, o.Spec)
		}
	}
	for i := range r.Len() {
		row := r.Record(i)
		o := object{}
		if r.Version == 1 {
			o.put("bytes", strconv.AppendUint(nil, r.PayloadBytes, 10))
		}
		if row.Status != client.OK {
			o.fail(row.Status.String())
			records = append(records, o.end())
			continue
		}
		for k := range r.Operators {
			o.put(r.Operators[k].Name(), value(ops[k], slices.Concat(row.Value(k), row.Strings(k))))
		}
		records = append(records, o.end())
	}
	return records, unknown, nil
}

// operator returns the operator of a spec, or nil if it isn't known, or if its records have another length.
func (d *decoder) operator(spec string, stride int) operator.Operator {
	op, err := d.parse(spec)
	if err != nil || op.Stride() != stride {
		return nil
	}
	return op
}

// value returns an operator's value of one record in JSON, or its bytes if op is nil.
func value(op operator.Operator, value []byte) json.RawMessage {
	if op != nil {
		return op.AppendJSON(nil, value)
	}
	return raw(value)
}

// arrow returns the records of a result in Arrow. specs has the operators, separated by commas.
func (d *decoder) arrow(specs string, body []byte) (records []json.RawMessage, unknown []string, err error) {
	var ops []operator.Operator
	for spec := range strings.SplitSeq(specs, ",") {
		op, err := d.parse(spec)
		if err != nil {
			unknown = append(unknown, spec)
		}
		ops = append(ops, op)
	}
	if len(unknown) > 0 {
		records, err = columns(body)
		return records, unknown, err
	}
	rows, err := arrowipc.Decode(operator.ArrowColumns(ops), body)
	if err != nil {
		return nil, nil, err
	}
	for i, length := range rows.Lengths {
		o := object{}
		o.put("bytes", strconv.AppendUint(nil, length, 10))
		if status := rows.Statuses[i]; status != record.OK {
			o.fail(status.String())
			records = append(records, o.end())
			continue
		}
		for k, op := range ops {
			o.put(op.Name(), op.AppendJSON(nil, operator.ArrowValue(op, k, &rows, i)))
		}
		records = append(records, o.end())
	}
	return records, nil, nil
}

// columns returns the records of a result in Arrow without knowing its operators: the columns of numbers and of byte strings.
func columns(body []byte) (records []json.RawMessage, err error) {
	r, err := arrow.Decode(body)
	if err != nil {
		return nil, err
	}
	name := func(operator, field string) string { return strings.TrimSuffix(operator+"."+field, ".") }
	for i := range r.Len() {
		o := object{}
		o.put("bytes", strconv.AppendUint(nil, r.Bytes[i], 10))
		if !r.OK(i) {
			o.fail(r.Statuses[i])
		}
		for k := range r.Columns {
			if v := r.Columns[k].Value(i); v != nil {
				o.put(name(r.Columns[k].Name, r.Columns[k].Field), encoded(v))
			}
		}
		for k := range r.Texts {
			if v := r.Texts[k].Value(i); v != nil {
				o.put(name(r.Texts[k].Name, r.Texts[k].Field), raw(v))
			}
		}
		records = append(records, o.end())
	}
	return records, nil
}
