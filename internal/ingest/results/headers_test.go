package results

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/store"
	"millrace/internal/operator"
)

func TestHeaderTextIsOneBoundedLine(t *testing.T) {
	t.Parallel()
	got := headerText(errors.New("one\r\ntwo" + strings.Repeat("x", 1000)))
	if len(got) != 512 || !strings.HasPrefix(got, "one  twoxxx") {
		t.Errorf("%d bytes, %q", len(got), got[:20])
	}
}

// page returns a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	return string(natstest.Must(os.ReadFile("../../../docs/" + name))(t))
}

// TestTheDocumentsTellTheTwoKindsOfTooLargeApart shows that the docs give different remedies for a payload that
// exceeds a batch and for a result that exceeds the server's limit.
func TestTheDocumentsTellTheTwoKindsOfTooLargeApart(t *testing.T) {
	t.Parallel()
	begins, _, _ := strings.Cut(errUnstorable(errors.New("cause")).Error(), ":")
	remedies := []string{"`too_large`", "`max_payload`", "`max_msg_size`", "`worker check`", "MILLRACE_RESULT_FORMAT=binary"}
	for _, name := range []string{"protocol.md", "runbooks/MillraceDeadLetters.md"} {
		told := false
		for entry := range strings.Lines(page(t, name)) {
			if !strings.Contains(entry, "`"+begins+"`") {
				continue
			}
			told = true
			for _, want := range remedies {
				if !strings.Contains(entry, want) {
					t.Errorf("%s lacks %s where it explains %q:\n%s", name, want, begins, entry)
				}
			}
			if strings.Contains(entry, "MILLRACE_BATCH_BYTES") {
				t.Errorf("%s advises a larger batch for a result that exceeds the server's limit:\n%s", name, entry)
			}
		}
		if !told {
			t.Errorf("%s doesn't explain a dead letter whose error begins with %q", name, begins)
		}
	}
}

// TestReasonsOfTheProtocol shows that the table in docs/protocol.md has exactly the existing reasons.
func TestReasonsOfTheProtocol(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(page(t, "protocol.md"), "### Reasons\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var told []Reason
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)`").FindAllStringSubmatch(section, -1) {
		told = append(told, Reason(row[1]))
	}
	slices.Sort(told)
	if want := slices.Sorted(slices.Values(Reasons)); !slices.Equal(slices.Compact(told), want) {
		t.Errorf("the page has the reasons %q, want %q", told, want)
	}
}

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

// TestHeadersThatPassThroughCanBeWritten compares passThrough with the client, which reports no size for an invalid header.
func TestHeadersThatPassThroughCanBeWritten(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		key := "a" + string([]byte{byte(c)})
		_, passes := passThrough(nats.Header{key: {"b"}}, 0, true)[key]
		if writes := (&nats.Msg{Header: nats.Header{key: nil}}).Size() > 0; passes != writes {
			t.Errorf("header %q passes through: %v; the client writes it: %v", key, passes, writes)
		}
	}
	if got := passThrough(nats.Header{"": {"b"}}, 0, true); len(got) != 0 {
		t.Errorf("a header without a key passes through: %v", got)
	}
}

// BenchmarkResultHeader makes the headers of results, from inputs without headers and with a few. A map of up to
// eight headers uses the least memory.
func BenchmarkResultHeader(b *testing.B) {
	for name, header := range map[string]nats.Header{
		"none": nil, "two": {"Trace": {"1"}, "Language": {"en"}},
		"three": {"Trace": {"1"}, "Language": {"en"}, "traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}},
	} {
		b.Run(name, func(b *testing.B) {
			d := inflight.Delivery{
				Msg: modelMessage{header: header}, Stream: "INGEST", Sequence: 7, Subject: "ingest.web",
				Stored: time.Unix(1700000000, 123456789), NumDelivered: 1, First: true,
			}
			content := newContent(operator.JSON, compression.None)
			b.ReportAllocs()
			for b.Loop() {
				content.describe(ResultHeader(&d, "crc32c,minhash?k=24&hashes=128&seed=42"), false, 100)
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
	d := &inflight.Delivery{Msg: modelMessage{header: described}, Stream: "INGEST", First: true}
	for _, c := range []struct {
		format        operator.Format
		encoding      compression.Encoding
		framed        bool
		body          int
		kind, encoded string // Content-Type and Content-Encoding
	}{
		{operator.JSON, compression.None, false, 9, "application/json", ""},
		{operator.JSON, compression.None, true, 9, "application/x-ndjson", ""},
		{operator.Binary, compression.LZ4, false, 9, "application/octet-stream", "lz4"},
		{operator.Arrow, compression.Zstd, true, 9, "application/vnd.apache.arrow.stream", "zstd"},
		{operator.JSON, compression.Zstd, true, 0, "application/x-ndjson", ""},
	} {
		h, content := ResultHeader(d, "crc32c"), newContent(c.format, c.encoding)
		content.describe(h, c.framed, c.body)
		for _, key := range append(slices.Clone(resultHeaders[:]), "Content-Length", "Content-Language") {
			if len(h[key]) != 1 {
				t.Errorf("%v, %v: header %s has the values %q", c.format, c.encoding, key, h[key])
			}
			delete(h, key)
		}
		want := nats.Header{"Content-Type": {c.kind}}
		if c.encoded != "" {
			want["Content-Encoding"] = []string{c.encoded}
		}
		if !maps.EqualFunc(h, want, slices.Equal) {
			t.Errorf("%v, %v, framed %v, %d bytes: the headers are %v, want %v", c.format, c.encoding, c.framed, c.body, h, want)
		}
	}
}

func TestShortSubject(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", store.MaxSubject)
	for subject, want := range map[string]string{
		"a.b.": "a.b.", whole: whole, whole + "y": whole, whole[1:] + ".z": whole[1:],
	} {
		if got := shortSubject(subject); got != want {
			t.Errorf("shortSubject of %d bytes has %d, want %d", len(subject), len(got), len(want))
		}
	}
}

// TestTheLargestMessageIsTheSmallerLimit compares the limits of the server and of the result stream.
func TestTheLargestMessageIsTheSmallerLimit(t *testing.T) {
	t.Parallel()
	const limit = natstest.MaxPayload
	m := &messageSize{server: &Server{MaxPayload: natstest.New(t).NC.MaxPayload}}
	for stream, want := range map[int32]int{-1: limit, 0: limit, 1000: 1000, limit: limit, limit + 1: limit} {
		m.saw(&jetstream.StreamInfo{Config: jetstream.StreamConfig{MaxMsgSize: stream}})
		if got := m.maxBytes(); got != want {
			t.Errorf("with max_msg_size %d: %d, want %d", stream, got, want)
		}
	}
}

// TestTheClientLearnsMaxPayload shows that the worker reconnects if the server's limit exceeds the client's, with a
// minimum interval.
func TestTheClientLearnsMaxPayload(t *testing.T) {
	t.Parallel()
	const before, after = 4 << 10, 64 << 10
	r := &rig{natstest.New(t, func(o *server.Options) { o.MaxPayload = before })}
	log := slog.New(slog.DiscardHandler)
	m := &messageSize{log: log, server: &Server{MaxPayload: r.NC.MaxPayload, Reconnect: func(ctx context.Context) bool {
		return reconnect(ctx, natsconn.Connections{r.NC}, log)
	}}}
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
		d := r.input(1, make([]byte, c.bytes))
		helps := m.learn(r.Ctx(), &d, c.err)
		if known, again := r.NC.MaxPayload(), r.NC.Stats().Reconnects; helps != c.helps || known != c.known || again != c.again {
			t.Errorf("%s: helps %v, %d bytes are known, connected again %d times; want %v, %d, %d",
				c.name, helps, known, again, c.helps, c.known, c.again)
		}
	}
}
