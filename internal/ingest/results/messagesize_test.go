package results

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/natstest"
)

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
