package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/publisher"
)

// rig has a stream RESULTS, and counts the owners of one partition.
type rig struct {
	*natstest.Rig
	store  *Stream
	owners int
}

const markers = "commits.RESULTS.IN.millrace.0"

func newRig(at *natstest.Rig, c jetstream.StreamConfig) *rig {
	at.Helper()
	c.Name, c.Subjects, c.AllowAtomicPublish, c.AllowBatchPublish = "RESULTS", []string{"results.>", "commits.RESULTS.>"}, true, true
	at.Create(c)
	singles, err := publisher.NewWindowed(jsapi.API{}, 0, at.NC)
	if err != nil {
		at.Fatal(err)
	}
	return &rig{Rig: at, store: &Stream{Name: "RESULTS", Subject: markers, Publisher: singles, JS: at.JS, Rollup: c.AllowRollup}}
}

// open begins a lease of a new owner.
func (r *rig) open(way Way) *Chain {
	r.Helper()
	r.owners++
	c, _, err := Open(r.Context(), Options{Owner: fmt.Sprint("owner-", r.owners), Created: created, Way: way, Again: func(context.Context, Store, int, error) bool { return true }}, r.store, nil)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

func batch(first, last uint64) (msgs []*nats.Msg) {
	for input := first; input <= last; input++ {
		msgs = append(msgs, &nats.Msg{Subject: fmt.Sprint("results.", input%7), Header: nats.Header{jetstream.MsgIDHeader: {fmt.Sprint("IN:", input)}}, Data: []byte("result")})
	}
	return msgs
}

// commit stores results and fails the test if it can't.
func (r *rig) commit(c *Chain, first, last uint64) {
	r.Helper()
	msgs := batch(first, last)
	if stored, err := c.Commit(r.Context(), msgs, position(last)); err != nil || count(stored) != len(msgs) {
		r.Fatalf("%d of %d are stored: %v", count(stored), len(msgs), err)
	}
}

func count(stored []bool) (n int) {
	for _, each := range stored {
		if each {
			n++
		}
	}
	return n
}

// want compares the results in the stream with the results of the inputs up to n.
func (r *rig) want(n uint64) {
	r.Helper()
	var ids []string
	for _, m := range r.Stored("RESULTS") {
		if !strings.HasPrefix(m.Subject, markers) {
			ids = append(ids, ID(m.Header))
		}
	}
	var want []string
	for _, m := range batch(1, n) {
		want = append(want, ID(m.Header))
	}
	if !slices.Equal(ids, want) {
		r.Errorf("the stream has %q, want the results of %d inputs in order", ids, n)
	}
}

func eachWay(t *testing.T, test func(t *testing.T, r *rig, way Way)) {
	t.Run("fast", func(t *testing.T) { t.Parallel(); test(t, newRig(natstest.New(t), jetstream.StreamConfig{}), Fast) })
	t.Run("atomic", func(t *testing.T) { t.Parallel(); test(t, newRig(natstest.New(t), jetstream.StreamConfig{}), Atomic) })
	t.Run("atomic, a work queue with rollup", func(t *testing.T) {
		t.Parallel()
		test(t, newRig(natstest.New(t), jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy, AllowRollup: true}), Atomic)
	})
}

// TestThreeReplicas repeats the tests of owners on a cluster of three servers.
func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	urls := natstest.Cluster(t, 3)
	for name, test := range map[string]func(t *testing.T, r *rig, way Way){
		"owners": owners, "stale owner": staleOwner, "without markers": withoutMarkers, "dead letters": deadLetters,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(natstest.At(t, urls), jetstream.StreamConfig{Replicas: 3})
			test(t, r, Atomic)
			r.Delete("RESULTS")
		})
	}
}

func TestOwnersOfAPartition(t *testing.T) { t.Parallel(); eachWay(t, owners) }

func owners(t *testing.T, r *rig, way Way) {
	first := r.open(way)
	if at, ok := first.Found(); ok {
		t.Errorf("the first owner finds %v", at)
	}
	r.commit(first, 1, 100)
	r.commit(first, 101, 101)
	r.commit(first, 102, 900)
	second := r.open(way)
	if at, ok := second.Found(); !ok || at != position(900) {
		t.Errorf("the second owner finds %v, %v", at, ok)
	}
	stored, err := first.Commit(t.Context(), batch(901, 950), position(950))
	if !errors.Is(err, ErrFenced) || !Over(err) || count(stored) != 0 {
		t.Errorf("an owner that is fenced stores %d: %v", count(stored), err)
	}
	if done, parts, err := second.Leftovers().Find(t.Context(), position(901), batch(901, 901)[0].Subject, "IN:901"); done || len(parts) > 0 || err != nil {
		t.Errorf("a result is found that isn't stored: %v %v %v", done, parts, err)
	}
	r.commit(second, 901, 960)
	if stored, err := second.Commit(t.Context(), nil, position(970)); err != nil || count(stored) != 0 {
		t.Error(err)
	}
	if at, _ := r.open(way).Found(); at != position(970) {
		t.Errorf("the third owner finds %v", at)
	}
	r.want(960)
}

// TestABatchWithoutItsEnd stores only the first messages of a fast batch, without the last ones and the marker.
func TestABatchWithoutItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(natstest.New(t), jetstream.StreamConfig{MaxMsgSize: 1000})
	first := r.open(Fast)
	r.commit(first, 1, 10)
	msgs := batch(11, 20)
	msgs[6].Data = make([]byte, 2000)
	stored, err := first.Commit(t.Context(), msgs, position(20))
	if count(stored) != 6 || !publisher.Unstorable(err) || Over(err) {
		t.Fatalf("%v are stored: %v", stored, err)
	}
	second := r.open(Fast)
	if at, _ := second.Found(); at != position(10) {
		t.Errorf("the second owner finds %v", at)
	}
	for input := uint64(11); input <= 17; input++ {
		m := batch(input, input)[0]
		done, _, err := second.Leftovers().Find(t.Context(), position(input), m.Subject, ID(m.Header))
		if err != nil || done != (input <= 16) {
			t.Errorf("input %d is done: %v, %v", input, done, err)
		}
	}
	r.commit(second, 17, 20)
	r.want(20)
}

// withoutIDs moves the ids of messages to Millrace's own header.
func withoutIDs(msgs []*nats.Msg) []*nats.Msg {
	for _, m := range msgs {
		m.Header = nats.Header{HeaderID: m.Header[jetstream.MsgIDHeader]}
	}
	return msgs
}

// send sends message i of the fast batch behind a marker that isn't the last one. It returns the server's answer. If
// more is set, it skips an answer that only confirms the start of the batch.
func (r *rig) send(marker uint64, i int, m *nats.Msg, more bool) string {
	r.Helper()
	inbox := r.NC.NewInbox()
	answers, err := r.NC.SubscribeSync(inbox + ".>")
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	operation := min(i, 1)
	reply := fmt.Sprintf("%s.%s.1.fail.%d.%d.$FI", inbox, batchID(marker), i+1, operation)
	if err := r.NC.PublishMsg(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data, Reply: reply}); err != nil {
		r.Fatal(err)
	}
	for {
		answer, err := answers.NextMsgWithContext(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		if text := string(answer.Data); !more || !strings.Contains(text, `"type":"ack"`) {
			return text
		}
	}
}

// TestABatchUnderWay lets an owner take over in the middle of the previous owner's batch. Messages that the previous
// owner sends afterwards aren't stored, although only the first message of a batch has a condition.
func TestABatchUnderWay(t *testing.T) {
	t.Parallel()
	withoutIDs := func(first, last uint64) []*nats.Msg { return withoutIDs(batch(first, last)) }
	for name, c := range map[string]struct {
		batchOf func(first, last uint64) []*nats.Msg
		next    Way // way of the owner that takes over
	}{
		"with ids": {batch, Fast}, "without ids": {withoutIDs, Fast}, "without ids, before atomic batches": {withoutIDs, Atomic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			batchOf := c.batchOf
			r := newRig(natstest.New(t), jetstream.StreamConfig{})
			first := r.open(Fast)
			r.commit(first, 1, 10)
			marker := first.last
			under := append([]*nats.Msg{r.store.beginning(r.store.message(marker, first.next(position(20), nil)), 20)}, batchOf(11, 20)...)
			const half = 6
			for i, m := range under[:half] {
				if answer := r.send(marker, i, m, false); !strings.Contains(answer, `"type":"ack"`) {
					t.Fatalf("message %d of the batch: %s", i, answer)
				}
			}
			second := r.open(c.next)
			for i, m := range under[half:] {
				// No such batch exists.
				if answer := r.send(marker, half+i, m, false); !strings.Contains(answer, "10208") {
					t.Errorf("message %d of a batch that has ended: %s", half+i, answer)
				}
			}
			// Another message is the last one.
			if answer := r.send(marker, 0, under[0], true); !strings.Contains(answer, "10071") {
				t.Errorf("a batch behind a marker that isn't the last one begins: %s", answer)
			}
			next := uint64(11)
			for {
				m := batchOf(next, next)[0]
				done, _, err := second.Leftovers().Find(t.Context(), position(next), m.Subject, ID(m.Header))
				if err != nil {
					t.Fatal(err)
				}
				if !done {
					break
				}
				next++
			}
			if next != 11+half-1 {
				t.Errorf("the second owner goes on with input %d", next)
			}
			r.commit(second, next, 20)
			r.want(20)
		})
	}
}

// TestAStaleOwnerWithKnownResults shows that a stale owner stores no message, even if the results are already stored.
// The server checks ids before conditions. A batch must not begin with a known id, or the server would store its
// remaining messages without a condition.
func TestAStaleOwnerWithKnownResults(t *testing.T) { t.Parallel(); eachWay(t, staleOwner) }

func staleOwner(t *testing.T, r *rig, way Way) {
	first := r.open(way)
	r.commit(first, 1, 10)
	second := r.open(way)
	r.commit(second, 11, 15)
	stored, err := first.Commit(t.Context(), batch(11, 20), position(20))
	if !errors.Is(err, ErrFenced) || count(stored) != 0 {
		t.Errorf("an owner that is fenced stores %d: %v", count(stored), err)
	}
	r.commit(second, 16, 16)
	r.want(16)
}

// TestAStreamThatTakesNoFastBatchesAnyMore disables fast batches before the next owner takes over.
func TestAStreamThatTakesNoFastBatchesAnyMore(t *testing.T) {
	t.Parallel()
	r := newRig(natstest.New(t), jetstream.StreamConfig{})
	first := r.open(Fast)
	r.commit(first, 1, 10)
	c := r.StreamConfig("RESULTS")
	c.AllowBatchPublish = false
	r.Create(c)
	second := r.open(Atomic)
	if at, _ := second.Found(); at != position(10) {
		t.Errorf("the second owner finds %v", at)
	}
	r.commit(second, 11, 20)
	if stored, err := first.Commit(t.Context(), batch(11, 20), position(20)); !errors.Is(err, ErrFenced) || count(stored) != 0 {
		t.Errorf("an owner that is fenced stores %d: %v", count(stored), err)
	}
	r.want(20)
}

// TestAnExpiredMarker stores a delete marker, which the server may store in place of an expired commit marker.
func TestAnExpiredMarker(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, r *rig, way Way) {
		r.commit(r.open(way), 1, 3)
		expired := &nats.Msg{Subject: markers, Header: nats.Header{"Nats-Marker-Reason": {"MaxAge"}}}
		ack, err := r.JS.PublishMsg(t.Context(), expired)
		if err != nil {
			t.Fatal(err)
		}
		if last, err := r.store.Last(t.Context()); err != nil || last.At != ack.Sequence {
			t.Fatalf("the last marker is at %d: %v, want that in its place at %d", last.At, err, ack.Sequence)
		}
		next := r.open(way)
		if at, ok := next.Found(); ok {
			t.Errorf("the next owner finds %v", at)
		}
		r.commit(next, 4, 5)
	})
}

func TestAStreamWithoutItsMarkers(t *testing.T) { t.Parallel(); eachWay(t, withoutMarkers) }

func withoutMarkers(t *testing.T, r *rig, way Way) {
	c := r.open(way)
	r.commit(c, 1, 10)
	if err := r.Stream("RESULTS").Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stored, err := c.Commit(t.Context(), batch(11, 20), position(20)); !errors.Is(err, ErrLost) || count(stored) != 0 {
		t.Errorf("after a purge %d are stored: %v", count(stored), err)
	}
	next := r.open(way)
	if at, ok := next.Found(); ok {
		t.Errorf("after a purge the next owner finds %v", at)
	}
}

func TestDeadLettersOfAChain(t *testing.T) { t.Parallel(); eachWay(t, deadLetters) }

func deadLetters(t *testing.T, r *rig, way Way) {
	whole, record := Letter{position(12), WholeMessage}, Letter{position(15), 9}
	first := r.open(way)
	r.commit(first, 1, 10)
	if err := first.CommitLetters(t.Context(), batch(11, 12), []Letter{whole, record}, position(10)); err != nil {
		t.Fatal(err)
	}
	second := r.open(way)
	if at, _ := second.Found(); at != position(10) {
		t.Errorf("the second owner finds %v", at)
	}
	for letter, want := range map[Letter]bool{whole: true, record: true, {position(12), 9}: false, {position(15), 8}: false, {position(15), 900}: false, {position(13), WholeMessage}: false} {
		if got := second.Letters().Has(letter); got != want {
			t.Errorf("%v is stored: %v", letter, got)
		}
	}
	r.commit(second, 13, 14)
	third := r.open(way)
	if third.Letters().Has(whole) || !third.Letters().Has(record) {
		t.Errorf("the third owner has the letters %v", third.letters)
	}
}

// TestAStuckBatch simulates a batch that the server has ended but that still waits for a message that could not be
// stored. The server sends only status messages for the batch's id. A real server gets into this state only if
// another stream uses the last free space at the right moment.
func TestAStuckBatch(t *testing.T) {
	t.Parallel()
	nc := natstest.New(t).NC
	if _, err := nc.Subscribe(markers, func(m *nats.Msg) {
		switch {
		case strings.HasSuffix(m.Reply, ".4.$FI"):
			_ = nc.Publish(m.Reply, []byte(`{"type":"gap","last_seq":2,"seq":9}`))
			_ = nc.Publish(m.Reply, []byte(`{"type":"ack","seq":1,"msgs":1}`))
		case !strings.HasSuffix(m.Reply, ".$FI"):
			_ = nc.Publish(m.Reply, []byte(`{"stream":"RESULTS","seq":9}`))
		}
	}); err != nil {
		t.Fatal(err)
	}
	singles, err := publisher.NewWindowed(jsapi.API{}, 0, nc)
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s := &Stream{Name: "RESULTS", Subject: markers, Publisher: singles, JS: js}
	if at, err := s.Write(t.Context(), Fast, 7, nil, &Marker{}); at != 9 || err != nil {
		t.Errorf("the fence is stored at %d: %v", at, err)
	}
}

// TestTheLastInputOfSeveralBatches shows that the highest input of all batches counts. If an earlier batch was not
// stored, a later batch may have fewer inputs.
func TestTheLastInputOfSeveralBatches(t *testing.T) {
	t.Parallel()
	r := newRig(natstest.New(t), jetstream.StreamConfig{})
	for _, until := range []string{"20", "10", "15"} {
		if _, err := r.JS.PublishMsg(r.Ctx(), &nats.Msg{Subject: markers + begin, Header: nats.Header{headerUntil: {until}}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ behind, before, want uint64 }{{0, 4, 20}, {0, 1, 20}, {1, 4, 15}, {1, 2, 10}, {3, 4, 0}} {
		if until, err := r.store.Begun(r.Ctx(), c.behind, c.before); err != nil || until != c.want {
			t.Errorf("behind %d and before %d: up to input %d, %v, want %d", c.behind, c.before, until, err, c.want)
		}
	}
}
