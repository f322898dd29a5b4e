package unpack

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/jsapi"
)

type headed struct {
	input
	header nats.Header
}

func (h headed) Headers() nats.Header { return h.header }

// TestHeadersInAnySpelling shows that header names may have any case, and a header may span several lines.
func TestHeadersInAnySpelling(t *testing.T) {
	t.Parallel()
	const lines = "a\nb\n"
	packed := string(gzipped(t, []byte(lines)))
	twice := string(gzipped(t, []byte(packed)))
	o := Options{Split: frame.Splitter{Framing: frame.Auto, MaxBytes: 1 << 20, MaxRecord: 1 << 20}, Decompress: compression.Auto, Results: jsonResults(t)}
	const ndjson = "application/x-ndjson"
	for name, c := range map[string]struct {
		header  nats.Header
		body    string
		records int    // 0 means a fault
		reason  string // reason of a fault of the frame
	}{
		"as usual":                   {nats.Header{"Content-Type": {ndjson}}, lines, 2, ""},
		"lower case":                 {nats.Header{"content-type": {ndjson}}, lines, 2, ""},
		"upper case":                 {nats.Header{"CONTENT-TYPE": {ndjson}, "CONTENT-ENCODING": {"gzip"}}, packed, 2, ""},
		"none":                       {nil, lines, 1, ""},
		"another type":               {nats.Header{"content-type": {"text/plain"}}, lines, 1, ""},
		"the type on two lines":      {nats.Header{"Content-Type": {ndjson, ndjson}}, lines, 2, ""},
		"two types":                  {nats.Header{"Content-Type": {ndjson}, "content-type": {"text/plain"}}, lines, 0, "invalid_frame"},
		"two encodings on two lines": {nats.Header{"Content-Encoding": {"gzip", "gzip"}}, twice, 0, ""},
		"two encodings on one line":  {nats.Header{"Content-Encoding": {"gzip, gzip"}}, twice, 0, ""},
		"two spellings":              {nats.Header{"Content-Encoding": {"gzip"}, "content-encoding": {"gzip"}}, twice, 0, ""},
		"an empty encoding":          {nats.Header{"Content-Encoding": {""}}, lines, 1, ""},
		"headers that can't be read": {jsapi.Unreadable, lines, 0, ""},
	} {
		in := headed{input(c.body), c.header}
		m := &Message{u: New(o, &limited{limit: 1 << 30}, func(int64, int64) bool { return false }), in: in}
		m.Open()
		var fault *frame.Error
		if got := m.Records(); got != c.records || (m.Fault() == nil) != (c.records > 0) || errors.As(m.Fault(), &fault) != (c.reason != "") {
			t.Errorf("%s: %d records, %v", name, got, m.Fault())
		}
		if plain := o.IsPlain(in); plain && (c.records != 1 || m.Fault() != nil) {
			t.Errorf("%s: it counts as one record", name)
		}
	}
	// No setting requires the headers here.
	o.Split.Framing, o.Decompress = frame.NewlineDelimited, compression.None
	m := &Message{u: New(o, &limited{limit: 1 << 30}, func(int64, int64) bool { return false }), in: headed{input(lines), jsapi.Unreadable}}
	if m.Open(); m.Records() != 2 {
		t.Errorf("%d records, %v, want 2 whatever the headers say", m.Records(), m.Fault())
	}
	o.Split.Framing, o.Decompress = frame.Auto, compression.None
	m = &Message{u: New(o, &limited{limit: 1 << 30}, func(int64, int64) bool { return false }), in: headed{input(lines), jsapi.Unreadable}}
	if m.Open(); !errors.As(m.Fault(), new(*frame.Error)) {
		t.Errorf("%d records, %v, want a fault of the frame", m.Records(), m.Fault())
	}
}
