package results

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
)

// described is the header of an input that describes its body, in different spellings.
var described = nats.Header{
	"Content-Type": {"text/plain"}, "content-type": {"text/plain"}, "Content-Encoding": {"gzip"}, "CONTENT-ENCODING": {"gzip"},
	"Content-Length": {"1"}, "Content-Language": {"en"},
}

func TestAResultDescribesItsOwnBody(t *testing.T) {
	t.Parallel()
	d := &inflight.Delivery{Msg: headed{header: described}, Stream: "INGEST", First: true}
	for _, c := range []struct {
		format   operator.Format
		encoding compression.Encoding
		framed   bool
		body     int
		want     nats.Header
	}{
		{operator.JSON, compression.None, false, 9, nats.Header{"Content-Type": {"application/json"}}},
		{operator.JSON, compression.None, true, 9, nats.Header{"Content-Type": {"application/x-ndjson"}}},
		{operator.Binary, compression.LZ4, false, 9, nats.Header{"Content-Type": {"application/octet-stream"}, "Content-Encoding": {"lz4"}}},
		{operator.Arrow, compression.Zstd, true, 9, nats.Header{"Content-Type": {"application/vnd.apache.arrow.stream"}, "Content-Encoding": {"zstd"}}},
		{operator.JSON, compression.Zstd, true, 0, nats.Header{"Content-Type": {"application/x-ndjson"}}},
	} {
		h, content := ResultHeader(d, "crc32c"), newContent(c.format, c.encoding)
		content.describe(h, c.framed, c.body)
		for _, key := range append(slices.Clone(resultHeaders[:]), "Content-Length", "Content-Language") {
			if len(h[key]) != 1 {
				t.Errorf("%v, %v: header %s has the values %q", c.format, c.encoding, key, h[key])
			}
			delete(h, key)
		}
		if !maps.EqualFunc(h, c.want, slices.Equal) {
			t.Errorf("%v, %v, framed %v, %d bytes: the headers are %v, want %v", c.format, c.encoding, c.framed, c.body, h, c.want)
		}
	}
}

func TestTheDeadLetterOfAMessageDescribesTheInputsBody(t *testing.T) {
	t.Parallel()
	d := &inflight.Delivery{Msg: headed{header: described}, Stream: "INGEST"}
	h := DeadLetterHeader(d, TooLarge, errors.New("too large"), true)
	for key, values := range described {
		if !slices.Equal(h[key], values) {
			t.Errorf("header %s is %q, want %q", key, h[key], values)
		}
	}
}
