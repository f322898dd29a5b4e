package operator

import (
	"encoding/binary"
	"unicode/utf8"

	client "millrace/client/quality"
	"millrace/internal/device"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/quality"
)

// qualityName is the name of the operator quality: integer counters of a text, from which the scores of heuristic filters follow. Package
// quality of the client defines the counters. The operator refuses a payload that isn't valid UTF-8.
const qualityName = "quality"

const qualityStride = 4 * int(client.NumCounters)

// qualityReference appends the counters of payload, or zeros if the operator refuses it.
func qualityReference(dst, payload []byte) []byte {
	c, _ := quality.Reference(payload)
	for _, n := range c {
		dst = binary.LittleEndian.AppendUint32(dst, n)
	}
	return dst
}

// qualityRefusal returns the reason why the reference refuses payload, or "".
func qualityRefusal(payload []byte) string {
	if !utf8.Valid(payload) {
		return client.InvalidUTF8
	}
	return ""
}

// qualityPieceUnits is the size of a piece in the units of batch. A piece has the rows that begin in it, because one core counts a whole
// row.
const qualityPieceUnits = 16 << 10

// qualityHost is the host kernel.
type qualityHost struct{ description *compiled.Description }

func (qualityHost) Name() string { return qualityName }

func (q qualityHost) Bind(params []byte) (device.BoundHostKernel, error) {
	declared, err := q.description.BindBlock(params)
	if err != nil {
		return nil, device.Errorf("bind quality", "", device.ErrInvalid, "%v", err)
	}
	return qualityKernel{declared, qualityPieceUnits}, nil
}

type qualityKernel struct {
	declared   *compiled.Operator
	pieceUnits int
}

// Needs requests scratch for the sets of each row's lines and paragraphs.
func (q qualityKernel) Needs(s device.Shape) device.Needs {
	return device.Needs{Scratch: quality.SlotBytes * s.Bytes, Result: q.declared.Layout(s.Rows, s.Bytes).End}
}

func (q qualityKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	b, err := prepare(qualityName, q, rows, offsets, scratch, result, q.pieceUnits)
	if err != nil {
		return err
	}
	shape := b.shape()
	statuses := result[q.declared.Layout(shape.Rows, shape.Bytes).Status:]
	parallel(b.pieces(), func(piece int) {
		for p, ok := b.first(piece); ok; p, ok = b.next(p) {
			if !p.begins {
				continue
			}
			start, end := int(offsets[p.row]), int(offsets[p.row+1])
			memory := scratch[quality.SlotBytes*(start-int(offsets[0])):]
			statuses[p.row] = countQuality(result[p.row*qualityStride:][:qualityStride], rows[start:end], memory)
		}
	})
	return nil
}

// countQuality writes the counters of a row to record, and returns the row's status.
func countQuality(record, row, memory []byte) (status byte) {
	var c client.Counters
	if !quality.Count(&c, row, memory) {
		status = 1 // the only reason
	}
	for i, n := range c {
		binary.LittleEndian.PutUint32(record[4*i:], n)
	}
	return status
}
