package unpack

import (
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// Results describes the results of records.
type Results struct {
	Operators  []operator.Operator
	Format     operator.Format
	Compressed bool // which takes the result of a message twice
}

// cost returns the maximum memory for the index and the results of a message's records, which have that many bytes together.
func (r *Results) cost(records int, bytes int64) int64 {
	strings := operator.StringBytes(r.Operators, records, int(bytes))
	body := int64(table.MostBytes(r.Format, r.Operators, records, strings))
	if r.Compressed {
		body *= 2
	}
	return int64(records)*frame.IndexBytes + table.MostSize(r.Format, r.Operators, records, strings) + body + body/8
}

// Most returns the maximum memory for a message of at most received bytes: for the decompressed bytes, the index and the results of
// its records. It is 0 if every message is one record as it is.
func (s *Settings) Most(received int64) int64 {
	if !s.Splits() {
		return 0
	}
	most, records := s.Split.Limits()
	body, content := int64(0), min(most, received)
	if s.Decompress != compression.None {
		body, content = most, most
	}
	if s.Split.Framing == frame.Arrow || s.Split.Framing == frame.Auto {
		body, content = body+most, most // the buffers of the stream may be compressed
	}
	if s.Split.Framing == frame.None {
		records = 1
	}
	return body + s.Results.cost(int(min(int64(records), content+1)), content)
}
