package results

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/operator"
)

func TestCarriedHeaders(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"Trace": true, "traceparent": true, "Statuses": true, "X-Status": true, "Description-Of": true, "Nats": true, "Natsy": true,
		"Status": false, "status": false, "STATUS": false, "Description": false, "dEscription": false,
		"Nats-": false, "nats-Msg-Id": false, "NATS-ROLLUP": false, "Nats-Anything-New": false, "millrace-reason": false,
		"Status ": false, " Status": false, "Status\t": false, "\rStatus": false, "\u017ftatus": false, "": false, "Sta\x00tus": false,
	} {
		if got := carried(key); got != want {
			t.Errorf("header %q is carried: %v, want %v", key, got, want)
		}
	}
}

func TestWithheldHeadersAreNamed(t *testing.T) {
	t.Parallel()
	got := Withheld(nats.Header{
		"Trace": {"kept"}, "Status": {"409", "100"}, "nats-ttl": {"1s"}, "na\xefve": {"yes"}, "Empty ": {""},
		HeaderReason: {"too_large"}, "Nats-Pin-Id": {"a secret"}, HeaderInput: {"Status: 404"},
	})
	want := []string{"Empty : ", "Status: 404", "Status: 409", "Status: 100", "nats-ttl: 1s", "na\xefve: yes"}
	if !slices.Equal(got, want) {
		t.Errorf("withheld lines %q, want %q", got, want)
	}
	if got := Withheld(nats.Header{"Trace": {"kept"}}); got != nil {
		t.Errorf("withheld lines %q of a header that is carried", got)
	}
}

// headed is a message with headers that no server sent.
type headed struct {
	inflight.Message
	header nats.Header
}

func (h headed) Headers() nats.Header { return h.header }

// BenchmarkResultHeader makes the headers of results, from inputs without headers and with a few. A map of up to
// eight headers uses the least memory.
func BenchmarkResultHeader(b *testing.B) {
	for name, header := range map[string]nats.Header{
		"none": nil, "two": {"Trace": {"1"}, "Language": {"en"}}, "three": {"Trace": {"1"}, "Language": {"en"}, "traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
	} {
		b.Run(name, func(b *testing.B) {
			d := inflight.Delivery{
				Msg: headed{header: header}, Stream: "INGEST", Sequence: 7, Subject: "ingest.web", Stored: time.Unix(1700000000, 123456789), NumDelivered: 1, First: true,
			}
			content := newContent(operator.JSON, compression.None)
			b.ReportAllocs()
			for b.Loop() {
				content.describe(ResultHeader(&d, "crc32c,minhash?k=24&hashes=128&seed=1"), false, 100)
			}
		})
	}
}

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

// TestTheLargestMessageIsTheSmallerLimit compares the limits of the server and of the result stream.
func TestTheLargestMessageIsTheSmallerLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	m := &messageSize{conns: natsconn.Connections{r.NC}}
	for _, c := range []struct{ stream, want int }{
		{-1, natstest.MaxPayload}, {0, natstest.MaxPayload}, {1000, 1000}, {natstest.MaxPayload, natstest.MaxPayload}, {natstest.MaxPayload + 1, natstest.MaxPayload},
	} {
		m.saw(&jetstream.StreamInfo{Config: jetstream.StreamConfig{MaxMsgSize: int32(c.stream)}})
		if got := m.maxBytes(); got != c.want {
			t.Errorf("with max_msg_size %d: %d, want %d", c.stream, got, c.want)
		}
	}
}

// TestTheClientLearnsMaxPayload shows that the worker reconnects if the server's limit exceeds the client's, with a
// minimum interval.
func TestTheClientLearnsMaxPayload(t *testing.T) {
	t.Parallel()
	const before, after = 4 << 10, 64 << 10
	r := &rig{natstest.New(t, func(o *server.Options) { o.MaxPayload = before })}
	m := &messageSize{conns: natsconn.Connections{r.NC}, log: slog.New(slog.DiscardHandler)}
	r.Reload(func(o *server.Options) { o.MaxPayload = after })
	for _, c := range []struct {
		name  string
		err   error
		bytes int
		helps bool
		known int64  // limit after the step
		again uint64 // number of reconnects so far
	}{
		{"another refusal", errors.New("refused"), after, false, before, 0},
		{"the headers are too much for an input of that size", nats.ErrMaxPayload, before, true, before, 0},
		{"a larger input", nats.ErrMaxPayload, before + 1, true, after, 1},
		{"soon afterwards", nats.ErrMaxPayload, after + 1, false, after, 1},
	} {
		d := r.input(make([]byte, c.bytes))
		helps := m.learn(r.Ctx(), &d, c.err)
		if known, again := r.NC.MaxPayload(), r.NC.Stats().Reconnects; helps != c.helps || known != c.known || again != c.again {
			t.Errorf("%s: helps %v, %d bytes are known, connected again %d times; want %v, %d, %d", c.name, helps, known, again, c.helps, c.known, c.again)
		}
	}
}

// TestADeadLetterIsWholeOnceItMayBe shows that a dead letter omits only parts that exceed the current max_payload,
// once the worker has received a larger one.
func TestADeadLetterIsWholeOnceItMayBe(t *testing.T) {
	t.Parallel()
	const before, after = 4 << 10, 64 << 10
	r, w, counts := letterRig(t, false, before)
	r.Reload(func(o *server.Options) { o.MaxPayload = after })
	d := r.letterInput(w, letterCase{bytes: 2 * before, header: 100}, 1)
	if err := w.PublishDeadLetter(r.Ctx(), &d, TooLarge, errors.New("no")); err != nil {
		t.Fatal(err)
	}
	all := r.Stored("RESULTS_DEADLETTER")
	if len(all) != 1 {
		t.Fatalf("%d messages are stored, want one dead letter", len(all))
	}
	if len(all[0].Data) != 2*before || all[0].Header.Get("Note") == "" || all[0].Header.Get(HeaderOmitted) != "" {
		t.Errorf("the dead letter has %d bytes and the headers %v, want everything", len(all[0].Data), all[0].Header)
	}
	if n := counts.n.Load(); n > 0 {
		t.Errorf("%d dead letters without payload are counted", n)
	}
}
