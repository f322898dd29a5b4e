package trim

import (
	"bytes"
	"fmt"
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
	trimmer.reader.listedAt = time.Now().Add(-copiesAge)
	if s, err := trimmer.look(r.Ctx(), r.Stream("INGEST").CachedInfo()); err != nil || s.Held != Mirrored {
		t.Errorf("with a mirror that was made later, inputs are held because of %q, want %q: %v", s.Held, Mirrored, err)
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
	trimmer.reader.js = r.answering(func(request string, data []byte) []byte {
		answer, err := r.NC.Request(jetstream.DefaultAPIPrefix+request, data, natstest.Patience)
		if err != nil {
			t.Error(err)
			return nil
		}
		if strings.HasPrefix(request, "CONSUMER.LIST.") {
			return bytes.Replace(answer.Data, []byte(`"total":2`), []byte(`"missing":["away"],"total":3`), 1)
		}
		return answer.Data
	})
	if s, err := trimmer.look(r.Ctx(), r.Stream("INGEST").CachedInfo()); err != nil || s.Held != Unknown || s.Detail != "away" {
		t.Errorf("inputs are held because of %q (%q), want %q (away): %v", s.Held, s.Detail, Unknown, err)
	}
}

// answering returns a client of a simulated server. answer returns the answer to a request to its API.
func (r *rig) answering(answer func(request string, data []byte) []byte) jetstream.JetStream {
	r.Helper()
	const prefix = "SIMULATED."
	natstest.Must(r.NC.Subscribe(prefix+">", func(m *nats.Msg) {
		_ = m.Respond(answer(strings.TrimPrefix(m.Subject, prefix), m.Data))
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
		natstest.OK(t, Register(r.Ctx(), r.JS, "INGEST", Always, []string{name}))
		if c := r.StreamConfig("INGEST"); Marked(c) != marked || !slices.Contains(Registered(c), name) {
			t.Errorf("a stream with a mark: %v; its metadata is %v", marked, c.Metadata)
		}
	}
}

// TestARefusalAboutAnotherStream shows that a refusal for another stream does not apply to this one, although this
// one's name is its prefix.
func TestARefusalAboutAnotherStream(t *testing.T) {
	t.Parallel()
	refused := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.PURGE.>"}}}
	r := &rig{Rig: natstest.New(t, func(o *server.Options) {
		o.Users, o.NoAuthUser = []*server.User{{Username: "worker", Password: "worker", Permissions: refused}}, "worker"
	})}
	trimmer := r.trimmer(Auto)
	for _, c := range []struct {
		stream string
		want   bool
	}{{"INGEST2", false}, {"INGEST", true}} {
		subject := jetstream.DefaultAPIPrefix + "STREAM.PURGE." + c.stream
		natstest.OK(t, r.NC.Publish(subject, nil))
		r.Until("the server has refused the request", func() bool {
			last := r.NC.LastError()
			return last != nil && strings.Contains(last.Error(), `"`+subject+`"`)
		})
		if got := trimmer.isForbidden(); got != c.want {
			t.Errorf("after a refusal about stream %s, that of INGEST may not be trimmed: %v, want %v", c.stream, got, c.want)
		}
	}
}

// TestMayAsksWhatIsNeeded shows that a worker with registered consumers needs no permission to change the stream.
func TestMayAsksWhatIsNeeded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var asked []string
	js := r.answering(func(request string, _ []byte) []byte {
		asked = append(asked, request)
		if strings.Contains(request, "UPDATE") {
			return []byte(`{"error":{"code":403,"err_code":10000,"description":"no"}}`)
		}
		return []byte(`{"error":{"code":400,"err_code":10003,"description":"bad request"}}`)
	})
	c := r.StreamConfig("INGEST")
	if err := May(r.Ctx(), js, c, []string{"p-0"}); err != nil {
		t.Errorf("a worker with registered consumers may not trim: %v", err)
	}
	if err := May(r.Ctx(), js, c, []string{"p-0", "other"}); err == nil {
		t.Error("a worker whose consumers can't be registered may trim")
	}
	if want := []string{"STREAM.PURGE.INGEST", "STREAM.PURGE.INGEST", "STREAM.UPDATE.INGEST"}; !slices.Equal(asked, want) {
		t.Errorf("the requests are %q, want %q", asked, want)
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
