package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/publisher"
)

// rig is a stream on a real server, and owners of one partition.
type rig struct {
	*testing.T
	js     jetstream.JetStream
	stream jetstream.Stream
	store  *Stream
	owners int
}

const markers = "commits.RESULTS.IN.millrace.0"

// newRig creates a result stream on a server with that address, or on its own server if url is empty.
func newRig(t *testing.T, url string, c jetstream.StreamConfig) *rig {
	if url == "" {
		url = natstest.Plain(t, server.Options{JetStream: true, StoreDir: t.TempDir()}).ClientURL()
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	c.Name, c.Subjects, c.AllowAtomicPublish, c.AllowBatchPublish = "RESULTS", []string{"results.>", "commits.RESULTS.>"}, true, true
	stream, err := js.CreateStream(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	singles, err := publisher.NewWindowed(0, nc)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{T: t, js: js, stream: stream, store: &Stream{Name: "RESULTS", Subject: markers, Publisher: singles, Conn: nc, Rollup: c.AllowRollup}}
}

// open begins a lease.
func (r *rig) open(way Way) *Chain {
	r.Helper()
	r.owners++
	c, _, err := Open(r.Context(), Settings{Owner: fmt.Sprint("owner-", r.owners), Created: created, Way: way, Again: func(context.Context, int, error) bool { return true }}, r.store, nil)
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// batch returns the results of the inputs from first to last.
func batch(first, last uint64) (msgs []*nats.Msg) {
	for input := first; input <= last; input++ {
		msgs = append(msgs, &nats.Msg{Subject: fmt.Sprint("results.", input%7), Header: nats.Header{jetstream.MsgIDHeader: {fmt.Sprint("IN:", input)}}, Data: []byte("result")})
	}
	return msgs
}

// commit stores results, which must succeed.
func (r *rig) commit(c *Chain, first, last uint64) {
	r.Helper()
	msgs := batch(first, last)
	if stored, err := c.Commit(r.Context(), msgs, position(last)); err != nil || stored != len(msgs) {
		r.Fatalf("%d of %d are stored: %v", stored, len(msgs), err)
	}
}

// want compares the results in the stream with those of the inputs up to n.
func (r *rig) want(n uint64) {
	r.Helper()
	var ids []string
	info, err := r.stream.Info(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	for at := info.State.FirstSeq; at <= info.State.LastSeq; at++ {
		m, err := r.stream.GetMsg(r.Context(), at)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			r.Fatal(err)
		}
		if m.Subject != markers {
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

// eachWay runs test with each way on a stream that allows it.
func eachWay(t *testing.T, test func(t *testing.T, r *rig, way Way)) {
	t.Run("fast", func(t *testing.T) { t.Parallel(); test(t, newRig(t, "", jetstream.StreamConfig{}), Fast) })
	t.Run("atomic", func(t *testing.T) { t.Parallel(); test(t, newRig(t, "", jetstream.StreamConfig{}), Atomic) })
	t.Run("atomic, three replicas", func(t *testing.T) {
		t.Parallel()
		test(t, newRig(t, natstest.Cluster(t, 3), jetstream.StreamConfig{Replicas: 3}), Atomic)
	})
	t.Run("atomic, a work queue with rollup", func(t *testing.T) {
		t.Parallel()
		test(t, newRig(t, "", jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy, AllowRollup: true}), Atomic)
	})
}

func TestOwnersOfAPartition(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, r *rig, way Way) {
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
		if !errors.Is(err, ErrFenced) || !Over(err) || stored != 0 {
			t.Errorf("an owner that is fenced stores %d: %v", stored, err)
		}
		if done, parts, err := second.Find(t.Context(), position(901), batch(901, 901)[0].Subject, "IN:901"); done || len(parts) > 0 || err != nil {
			t.Errorf("a result is found that isn't stored: %v %v %v", done, parts, err)
		}
		r.commit(second, 901, 960)
		if stored, err := second.Commit(t.Context(), nil, position(970)); err != nil || stored != 0 {
			t.Error(err)
		}
		if at, _ := r.open(way).Found(); at != position(970) {
			t.Errorf("the third owner finds %v", at)
		}
		r.want(960)
	})
}

// TestABatchWithoutItsEnd: the first messages of a fast batch are stored, and the last ones and the marker are not.
func TestABatchWithoutItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, "", jetstream.StreamConfig{MaxMsgSize: 1000})
	first := r.open(Fast)
	r.commit(first, 1, 10)
	msgs := batch(11, 20)
	msgs[6].Data = make([]byte, 2000)
	stored, err := first.Commit(t.Context(), msgs, position(20))
	if stored != 6 || !publisher.Unstorable(err) || Over(err) {
		t.Fatalf("%d are stored: %v", stored, err)
	}
	second := r.open(Fast)
	if at, _ := second.Found(); at != position(10) {
		t.Errorf("the second owner finds %v", at)
	}
	for input := uint64(11); input <= 17; input++ {
		m := batch(input, input)[0]
		done, _, err := second.Find(t.Context(), position(input), m.Subject, ID(m.Header))
		if err != nil || done != (input <= 16) {
			t.Errorf("input %d is done: %v, %v", input, done, err)
		}
	}
	r.commit(second, 17, 20)
	r.want(20)
}

func TestAStreamWithoutItsMarkers(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, r *rig, way Way) {
		c := r.open(way)
		r.commit(c, 1, 10)
		if err := r.stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if stored, err := c.Commit(t.Context(), batch(11, 20), position(20)); !errors.Is(err, ErrLost) || stored != 0 {
			t.Errorf("after a purge %d are stored: %v", stored, err)
		}
		next := r.open(way)
		if at, ok := next.Found(); ok {
			t.Errorf("after a purge the next owner finds %v", at)
		}
	})
}

func TestDeadLettersOfAChain(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, r *rig, way Way) {
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
	})
}
