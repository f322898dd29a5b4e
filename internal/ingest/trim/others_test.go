package trim

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// TestABeginningThatMovesByItself moves the beginning of the stream as expiry or an administrator's purges do. A
// worker assumes another worker's purges, but only for a limited number of steps.
func TestABeginningThatMovesByItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const inputs = 10
	r.store(make([]int, inputs)...)
	r.process("p-0", inputs)
	trimmer := r.trimmer(Auto)
	for step := range uint64(maxYields + 1) {
		if r.removed > 0 {
			t.Errorf("a worker removes inputs in step %d, while the beginning of the stream moves", step)
		}
		natstest.OK(t, r.Stream("INGEST").Purge(r.Ctx(), jetstream.WithPurgeSequence(step+2)))
		natstest.Must(trimmer.step(r.Ctx()))(t)
	}
	if want := uint64(inputs - maxYields - 1); r.removed != want {
		t.Errorf("after %d steps %d inputs are removed, want %d", maxYields+1, r.removed, want)
	}
}

func TestACopyThatIsMadeLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	trimmer := r.trimmer(Auto)
	r.store(0, 0)
	r.process("p-0", 1)
	r.trim(trimmer)
	r.wantLeft(2, None, "p-0")
	r.Create(jetstream.StreamConfig{Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: "INGEST"}})
	trimmer.listedAt = time.Now().Add(-copiesAge)
	if s, err := trimmer.lookRegistered(r.Ctx(), r.Stream("INGEST").CachedInfo()); err != nil || s.Held != Mirrored {
		t.Errorf("with a mirror that was created later, inputs are held because of %q, want %q: %v", s.Held, Mirrored, err)
	}
}

// TestAConsumerThatTheServerCanNotTell simulates a cluster without the leader of a consumer. It is then unknown which
// inputs this consumer needs, even if it belongs to another program.
func TestAConsumerThatTheServerCanNotTell(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.store(0)
	r.process("p-0", 1)
	trimmer := r.trimmer(Auto)
	trimmer.JS = r.answering(func(request string, answer []byte) []byte {
		if strings.HasPrefix(request, "CONSUMER.LIST.") {
			return bytes.Replace(answer, []byte(`"total":2`), []byte(`"missing":["away"],"total":3`), 1)
		}
		return answer
	})
	if s, err := trimmer.lookRegistered(r.Ctx(), r.Stream("INGEST").CachedInfo()); err != nil || s.Held != Unknown || s.Detail != "away" {
		t.Errorf("inputs are held because of %q (%q), want %q (away): %v", s.Held, s.Detail, Unknown, err)
	}
}

// answering returns a client of a simulated server. change returns its answer to a request, given the answer of the real server.
func (r *rig) answering(change func(request string, answer []byte) []byte) jetstream.JetStream {
	r.Helper()
	const prefix = "SIMULATED."
	natstest.Must(r.NC.Subscribe(prefix+">", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, prefix)
		answer, err := r.NC.Request(jetstream.DefaultAPIPrefix+request, m.Data, natstest.Patience)
		if err != nil {
			r.Error(err)
			return
		}
		_ = m.Respond(change(request, answer.Data))
	}))(r)
	return natstest.Must(jetstream.NewWithAPIPrefix(r.NC, prefix))(r)
}

// TestRegisterLeavesTheMarkOut shows that Register doesn't mark the stream under the policy Always, because that
// policy applies only to this deployment.
func TestRegisterLeavesTheMarkOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, marked := range []bool{true, false} {
		if !marked {
			r.Change("INGEST", func(c *jetstream.StreamConfig) { delete(c.Metadata, MarkKey) })
		}
		name := fmt.Sprint("marked-", marked)
		natstest.OK(t, r.register(Always, name))
		if c := r.StreamConfig("INGEST"); Marked(c) != marked || !slices.Contains(Registered(c), name) {
			t.Errorf("a stream with a mark: %v; its metadata is %v", marked, c.Metadata)
		}
	}
}

// TestARefusalAboutAnotherStream shows that a refusal for another stream does not apply to this stream. This stream's name is a prefix of the other
// name. A Trimmer without permission logs that and pauses. After other errors, it retries after a pause.
func TestARefusalAboutAnotherStream(t *testing.T) {
	t.Parallel()
	refused := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.PURGE.>"}}}
	r := &rig{Rig: natstest.New(t, func(o *server.Options) {
		o.Users, o.NoAuthUser = []*server.User{{Username: "worker", Password: "worker", Permissions: refused}}, "worker"
	})}
	for _, c := range []struct {
		stream, log string
		held        Reason
		most        int // maximum number of steps
	}{
		{"INGEST2", "could not check whether processed inputs can be removed", None, 4},
		{"INGEST", "this worker may not remove processed inputs", Forbidden, 1},
	} {
		subject := jetstream.DefaultAPIPrefix + "STREAM.PURGE." + c.stream
		natstest.OK(t, r.NC.Publish(subject, nil))
		r.Until("the server has refused the request", func() bool {
			last := r.NC.LastError()
			return last != nil && strings.Contains(last.Error(), `"`+subject+`"`)
		})
		log, trimmer := natstest.NewLog(t), r.trimmer(Auto)
		trimmer.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		ctx, cancel := context.WithTimeout(r.Ctx(), busyPause*2+minPause)
		defer cancel()
		trimmer.Run(ctx) // there is no stream, so each step fails
		if n := log.Count(c.log); n < 1 || n > c.most || r.last.Held != c.held {
			t.Errorf("after a refusal about stream %s, the log has %d lines, and inputs are held because of %q", c.stream, n, r.last.Held)
		}
	}
	ctx, cancel := context.WithTimeout(r.Ctx(), minPause)
	defer cancel()
	if r.trimmer(Never).Run(ctx); ctx.Err() != nil {
		t.Error("a Trimmer that never trims runs")
	}
}

func TestBehind(t *testing.T) {
	t.Parallel()
	info := &jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: 10}}
	for _, c := range []struct {
		state State
		want  uint64
	}{{State{}, 0}, {State{Info: info, Floor: 4}, 6}, {State{Info: info, Floor: 11}, 0}, {State{Info: info, Held: Missing}, 0}} {
		if got := c.state.Behind(); got != c.want {
			t.Errorf("%+v is %d behind, want %d", c.state, got, c.want)
		}
	}
}

// TestMayAsksWhatIsNeeded shows that a worker with registered consumers needs no permission to change the stream.
func TestMayAsksWhatIsNeeded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var asked []string
	js := r.answering(func(request string, answer []byte) []byte {
		asked = append(asked, request)
		if strings.Contains(request, "UPDATE") {
			return []byte(`{"error":{"code":403,"err_code":10000,"description":"no"}}`)
		}
		return answer
	})
	c := r.StreamConfig("INGEST")
	if err := New(Options{JS: js, Consumers: []string{"p-0"}}).May(r.Ctx(), c); err != nil {
		t.Errorf("a worker with registered consumers may not trim: %v", err)
	}
	if err := New(Options{JS: js, Consumers: []string{"p-0", "other"}}).May(r.Ctx(), c); err == nil {
		t.Error("a worker whose consumers can't be registered may trim")
	}
	if want := []string{"STREAM.PURGE.INGEST", "STREAM.PURGE.INGEST", "STREAM.UPDATE.INGEST"}; !slices.Equal(asked, want) {
		t.Errorf("the requests are %q, want %q", asked, want)
	}
	other := New(Options{JS: js, Stream: "INGEST", Consumers: []string{"other"}})
	state := natstest.Must(other.lookRegistered(r.Ctx(), r.Stream("INGEST").CachedInfo()))(t)
	if text := state.Explain(); state.Held != Unregistered || !strings.Contains(text, "publish on SIMULATED.STREAM.UPDATE.INGEST") {
		t.Errorf("inputs are held because of %q: %s", state.Held, text)
	}
}

// TestAnEmptyStreamFillsNothing shows that a missing consumer of an empty stream is not reported.
func TestAnEmptyStreamFillsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.deleteConsumer("p-1")
	r.trim(r.trimmer(Auto))
	if r.last.Info != nil || r.last.Held != None {
		t.Errorf("an empty stream is held because of %q", r.last.Held)
	}
}

// TestTheLogSaysWhatHoldsAStreamForLong shows that each reason is logged once. A stream that must not be trimmed is not logged.
func TestTheLogSaysWhatHoldsAStreamForLong(t *testing.T) {
	t.Parallel()
	log := natstest.NewLog(t)
	trimmer := New(Options{Stream: "INGEST", Log: log.Logger(), Observer: &rig{}})
	lines := 0
	for _, c := range []struct {
		held Reason
		long bool // whether the reason has lasted for long
		more int  // number of new log lines
	}{
		{Missing, false, 0}, {Missing, false, 0}, {Missing, true, 1}, {Missing, true, 0},
		{None, true, 0}, {Missing, true, 0}, {Missing, true, 1},
		{Mirrored, true, 0}, {Mirrored, true, 1}, {NotTrimmed, true, 0}, {NotTrimmed, true, 0}, {None, true, 0}, {None, true, 0},
	} {
		if c.long && !trimmer.heldAt.IsZero() {
			trimmer.heldAt = time.Now().Add(-heldLong - time.Second)
		}
		trimmer.report(0, State{Info: &jetstream.StreamInfo{}, Held: c.held})
		lines += c.more
		if got := log.Count("processed inputs stay in the stream"); got != lines {
			t.Fatalf("held by %q, for long %v: the log has %d lines, want %d", c.held, c.long, got, lines)
		}
	}
}
