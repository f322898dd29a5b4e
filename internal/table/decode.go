package table

import (
	"encoding/binary"
	"errors"
	"fmt"

	"millrace/internal/operator"
	"millrace/internal/record"
)

// contents is a decoded body in the format Binary. Slices refer to the body.
type contents struct {
	first    int // index of the first record in the input's frame
	statuses []byte
	columns  [][]byte
}

// decodeBinary decodes the body of these operators. A body of other operators, bytes after the last result, nonzero padding and
// nonzero results of records that aren't OK are errors.
func decodeBinary(ops []operator.Operator, body []byte) (contents, error) {
	if len(body) == 0 {
		return contents{columns: make([][]byte, len(ops))}, nil
	}
	r := reader{body: body}
	if string(r.take(4)) != binaryMagic {
		return contents{}, fmt.Errorf("not a binary result: it must start with %q", binaryMagic)
	}
	if version := r.uint16(); version != binaryVersion {
		return contents{}, fmt.Errorf("binary result of version %d: want version %d", version, binaryVersion)
	}
	if n := r.uint16(); n != len(ops) {
		return contents{}, fmt.Errorf("operators: got %d, want %d", n, len(ops))
	}
	records := r.uint32()
	c := contents{first: r.uint32()}
	for i, op := range ops {
		specBytes, stride := r.uint32(), r.uint32()
		if spec := string(r.takePadded(specBytes)); r.err == nil && (spec != op.String() || stride != op.Stride()) {
			return contents{}, fmt.Errorf("operator %d: got %q with %d bytes per record, want %q with %d", i+1, spec, stride, op, op.Stride())
		}
	}
	c.statuses = r.takePadded(records)
	for _, op := range ops {
		c.columns = append(c.columns, r.takePadded(records*op.Stride()))
	}
	if r.err == nil && len(r.body) > r.at {
		r.err = fmt.Errorf("%d extra bytes from byte %d on", len(r.body)-r.at, r.at)
	}
	if r.err != nil {
		return contents{}, fmt.Errorf("binary result: %w", r.err)
	}
	return c, c.check(ops)
}

func (c contents) check(ops []operator.Operator) error {
	for i, s := range c.statuses {
		if !record.Status(s).Valid() {
			return fmt.Errorf("record %d: unknown status %d", i, s)
		}
		for k, op := range ops {
			for _, b := range c.result(op, k, i) {
				if record.Status(s) != record.OK && b != 0 {
					return fmt.Errorf("record %d, %s: its status is %v, and its result isn't zero", i, op.Name(), record.Status(s))
				}
			}
		}
	}
	return nil
}

// result returns the result of record i of the operator with index k.
func (c contents) result(op operator.Operator, k, i int) []byte {
	return c.columns[k][i*op.Stride() : (i+1)*op.Stride()]
}

// reader takes fields off a body. After the first error it returns zeros.
type reader struct {
	body []byte
	at   int
	err  error
}

func (r *reader) take(n int) []byte {
	if r.err == nil && n > len(r.body)-r.at {
		r.err = fmt.Errorf("truncated: a field of %d bytes starts at byte %d of %d", n, r.at, len(r.body))
	}
	if r.err != nil {
		return nil
	}
	field := r.body[r.at : r.at+n]
	r.at += n
	return field
}

func (r *reader) takePadded(n int) []byte {
	field := r.take(n)
	for _, b := range r.take(padded(n) - n) {
		if b != 0 && r.err == nil {
			r.err = errors.New("padding is not zero")
		}
	}
	return field
}

func (r *reader) uint16() int {
	if field := r.take(2); field != nil {
		return int(binary.LittleEndian.Uint16(field))
	}
	return 0
}

func (r *reader) uint32() int {
	if field := r.take(4); field != nil {
		return int(binary.LittleEndian.Uint32(field))
	}
	return 0
}
