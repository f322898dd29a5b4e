package broker

import (
	"strconv"

	"github.com/nats-io/nats.go"

	"millrace/internal/bench/report"
	"millrace/internal/compression"
	"millrace/internal/filter"
	"millrace/internal/frame"
	"millrace/internal/ingest/results"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/table"
)

// form describes the messages of a load and their results.
type form struct {
	framing   frame.Framing
	encoding  compression.Encoding
	documents bool            // whether each record is a JSON object with a text, as textframes.AppendDocument makes it
	copies    bool            // whether the records are texts, some of which are near-duplicates of others
	field     string          // member that operators process; empty for whole records
	format    operator.Format // format of results
	filter    string          // filter of the records in results; empty for all records
	size      int             // size of a record in its message, in bytes
	records   int             // number of records per message
}

// single returns the form of messages with one record each, without framing. Results are JSON.
func single(size int) form { return form{size: size, records: 1} }

// These are the maximum numbers of records in a frame. The second limit applies to documents and to texts with near-duplicates, so that the
// result of a frame fits into one message. The results of the operator quality have about 900 bytes per document in JSON.
const (
	maxFrameRecords   = 8192
	maxFrameDocuments = 1024
)

// filled returns the form with records of size bytes. A frame gets as many records as fit into frameBytes, within the limits.
func (f form) filled(size, frameBytes int) form {
	f.size, f.records = size, min(max(frameBytes/size, 1), maxFrameRecords)
	if f.documents || f.copies {
		f.records = min(f.records, maxFrameDocuments)
	}
	return f
}

// annotation is the name of the member with the result in annotated documents.
const annotation = "millrace"

// messages returns the settings of a worker with the given operators for the form.
func (f form) messages(ops []operator.Operator) memory.Messages {
	m := memory.Messages{Operators: ops, Format: f.format, Decompress: f.encoding}
	if f.framing != frame.None {
		m.Split = frame.Splitter{Framing: f.framing, Field: f.field, MaxRecords: frame.DefaultMaxRecords, MaxBytes: frame.DefaultMaxBytes}
	}
	if f.format == operator.Annotated {
		m.Split.Annotate = annotation
	}
	if f.filter != "" {
		var err error
		if m.Filter, err = filter.New(f.filter, ops, nil); err != nil {
			panic("broker: " + err.Error()) // the filters are constant
		}
	}
	return m
}

// header returns the headers of a result that describe its records. leftOut is the number of records that the filter leaves out.
func (f form) header(records, leftOut int) nats.Header {
	framed := f.framing != frame.None
	h := nats.Header{headerContentType: {table.ContentType(f.format, framed)}}
	if framed {
		h[results.HeaderRecords] = []string{strconv.Itoa(records)}
	}
	if f.filter != "" {
		h[results.HeaderFiltered] = []string{strconv.Itoa(leftOut)}
	}
	if f.format == operator.Annotated {
		h[results.HeaderAnnotation] = []string{annotation}
	}
	return h
}

const headerContentType = "Content-Type"

// describe sets the fields of a row that depend on the form.
func (f form) describe(r *report.Row) {
	if f.framing == frame.None {
		return
	}
	r.Framing, r.Compression = f.framing.String(), f.encoding.String()
	r.Field, r.Results, r.Filter = f.field, f.format.String(), f.filter
}
