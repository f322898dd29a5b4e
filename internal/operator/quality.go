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

// hasNGrams reports whether a valid parameter block requests the counters of n-grams.
func hasNGrams(block []byte) bool { return block[0] != 0 }

// qualityReference returns a function that appends the counters of a payload, or zeros if the operator refuses it.
func qualityReference(block []byte) referenceFunc {
	ngrams := hasNGrams(block)
	return func(dst, payload []byte) []byte {
		c, _ := quality.Reference(payload, ngrams)
		return appendCounters(dst, &c, ngrams)
	}
}

// appendCounters appends the counters that a record has.
func appendCounters(dst []byte, c *quality.Counters, ngrams bool) []byte {
	all := c[:]
	if !ngrams {
		all = c[:client.Duplicate5GramChars]
	}
	for _, n := range all {
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

// qualityPieceUnits is the size of a piece in the units of batch. A piece contains the rows that begin in it, because one core counts a
// whole row.
const qualityPieceUnits = 16 << 10

// qualityHost is the host kernel.
type qualityHost struct{ description *compiled.Description }

func (qualityHost) Name() string { return qualityName }

func (q qualityHost) Bind(params []byte) (device.BoundHostKernel, error) {
	declared, err := q.description.BindBlock(params)
	if err != nil {
		return nil, device.Errorf("bind quality", "", device.ErrInvalid, "%v", err)
	}
	return qualityKernel{declared, hasNGrams(params), qualityPieceUnits}, nil
}

type qualityKernel struct {
	declared   *compiled.Operator
	ngrams     bool
	pieceUnits int
}

// Needs requests scratch for the sets of each row's lines and paragraphs, and for its n-grams.
func (q qualityKernel) Needs(s device.Shape) device.Needs {
	return device.Needs{Scratch: quality.MemoryBytes(s.Rows, s.Bytes, q.ngrams), Result: q.declared.Layout(s.Rows, s.Bytes).End}
}

func (q qualityKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	b, err := prepare(qualityName, q, rows, offsets, scratch, result, q.pieceUnits)
	if err != nil {
		return err
	}
	shape := b.shape()
	statuses, stride := result[q.declared.Layout(shape.Rows, shape.Bytes).Status:], q.declared.Stride()
	parallel(b.pieces(), func(piece int) {
		for p, ok := b.first(piece); ok; p, ok = b.next(p) {
			if !p.begins {
				continue
			}
			start, end := int(offsets[p.row]), int(offsets[p.row+1])
			memory := scratch[quality.MemoryBytes(p.row, start-int(offsets[0]), q.ngrams):]
			record := result[p.row*stride:][:0:stride]
			statuses[p.row] = q.count(record, rows[start:end], memory)
		}
	})
	return nil
}

// count appends the counters of a row to record, and returns the row's status.
func (q qualityKernel) count(record, row, memory []byte) (status byte) {
	var c quality.Counters
	if !quality.Count(&c, row, memory, q.ngrams) {
		status = 1 // the only reason
	}
	appendCounters(record, &c, q.ngrams)
	return status
}
