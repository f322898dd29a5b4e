package memory

import (
	"millrace/internal/compression"
	"millrace/internal/filter"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// Messages describes a worker's messages and results. Its fields determine the memory of a message, which consists of:
//
//   - the delivery: the payload, headers, bookkeeping and the largest result of one record, from the pull to the acknowledgement
//   - the frame, if the message has many records or is compressed: the decompressed body, the values of a field, the index of the records, and their results
//   - the receipt: a token for a later acknowledgement, after the delivery's memory is released
//
// Sizes are in bytes. TestCostsCoverTheHeap of package ingest compares them with the heap.
type Messages struct {
	Operators  []operator.Operator  // the operators that the pipelines run
	Format     operator.Format      // format of results
	Compress   compression.Encoding // compression of results
	Split      frame.Splitter       // framing of messages, and the limits of a frame; New sets MaxRecord to the capacity of a batch
	Decompress compression.Encoding // compression of messages
	Filter     *filter.Filter       // selects the records in results; nil selects all
}

const (
	// deliveryBytes is the memory of a delivery in addition to its message and its result. It covers the client's message, and the entries
	// in batches, settle buffers and the ledger. It also covers the result's message with its headers, and the client's state of an
	// unconfirmed publish. The measured value is 2.1 KiB.
	deliveryBytes = 2560

	// headerBytes is the memory of a header in addition to its text, and valueBytes is the memory of each value. They cover the entries in the
	// maps of the input and of the result.
	headerBytes = 192
	valueBytes  = 32

	// usualHeaders is the assumed size of a payload's subjects and headers.
	usualHeaders = 1024

	// FrameBytes is the memory of a frame in addition to its index and its results, in bytes. It covers the frame's state in the delivery,
	// and bookkeeping until its batches complete. The measured values are up to 0.5 KiB.
	FrameBytes = 768

	// receiptBytes is the memory of a receipt.
	receiptBytes = 512
)

// delivery returns the memory of a delivery with an empty payload and no headers, and the growth of its result per byte of payload.
func (m *Messages) delivery() (empty, perByte int64) {
	none := m.Format.MaxBytes(m.Operators, 0)
	result := int64(m.Format.MaxBytes(m.Operators, operator.StringBytes(m.Operators, 1, 0)))
	perByte = int64(m.Format.MaxBytes(m.Operators, operator.StringBytes(m.Operators, 0, 1)) - none)
	return deliveryBytes + result + result/16, perByte + (perByte+15)/16 // the allocator rounds sizes up
}

// Splits reports whether messages may have an index and a table of results. They have them if messages may be frames, may be
// compressed or have fields, if results have only some records, or if an operator is stateful. The size of such a message doesn't
// bound its number of records. If Splits returns false, each message is one record.
func (m *Messages) Splits() bool {
	return m.Split.Framing != frame.None || m.Decompress != compression.None || m.Split.Selects() || m.Selects() || operator.HasState(m.Operators)
}

// Selects reports whether results have only some of the records of a message, with their numbers.
func (m *Messages) Selects() bool { return m.Filter != nil || m.Format == operator.Annotated }

// FrameResults returns the maximum memory for the index and the results of a frame with the given number and total size of its records.
// kept is the total size of its kept fields, and received is the size of the whole frame, or frame.Splitter.SourceBytes.
func (m *Messages) FrameResults(records int, bytes, kept, received int64) int64 {
	strings := operator.StringBytes(m.Operators, records, int(bytes))
	fields := int64(table.MaxFields(m.Format, m.Split.Keep, records, int(kept)))
	body := int64(table.MaxBytes(m.Format, m.Operators, records, strings)) + fields
	if m.Format == operator.Annotated {
		body += received
		if m.Split.Framing == frame.Arrow || m.Split.Framing == frame.Auto {
			arrow := int64(table.MaxBytes(operator.Arrow, m.Operators, records, strings) + table.MaxFields(operator.Arrow, m.Split.Keep, records, int(kept)))
			body += 3 * arrow // the results exist as a stream, in a batch, and in the stream of the rows
			body += table.MaxSize(operator.Arrow, m.Operators, records, strings)
		}
	}
	if m.Compress != compression.None {
		body *= 2 // the results are in memory twice while they are compressed
	}
	results := table.MaxSize(m.Format, m.Operators, records, strings)
	if m.Selects() {
		results += results + 2*4*int64(records) // the records in the result, and their numbers
	}
	results += table.MaxKeys(m.Operators, records)
	return FrameBytes + int64(records)*m.Split.IndexBytes() + results + fields + body + body/8
}

// largestFrame returns the maximum memory of a frame, without its delivery. received is the maximum size of a message. It returns 0 if
// every message is a single uncompressed record.
func (m *Messages) largestFrame(received int64) int64 {
	if !m.Splits() {
		return 0
	}
	limit, records := m.Split.Limits()
	body, content := int64(0), min(limit, received)
	if m.Decompress != compression.None {
		body, content = limit, limit
	}
	if m.Split.Framing == frame.Arrow || m.Split.Framing == frame.Auto {
		body, content = body+limit, limit // the buffers of the stream may be compressed
	}
	if m.Split.Selects() && (m.Split.Framing == frame.None || m.Split.Framing == frame.Auto) {
		content = max(content, received) // the limit doesn't hold for a message without a framing
	}
	if m.Split.Field != "" && m.Split.Framing != frame.Arrow {
		body += content // the values of the field
	}
	kept := int64(0)
	if len(m.Split.Keep) > 0 {
		kept = content // kept fields don't overlap
		if m.Split.Framing == frame.Arrow || m.Split.Framing == frame.Auto {
			body += 2 * limit // the buffers of a kept column, and the JSON texts of all kept values
		}
	}
	if m.Split.Framing == frame.None {
		records = 1
	}
	source := content
	if m.Format == operator.Annotated && (m.Split.Framing == frame.Arrow || m.Split.Framing == frame.Auto) {
		source = frame.RowFactor * max(limit, content)
	}
	return body + m.FrameResults(int(min(int64(records), content+1)), content, kept, source)
}
