package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/natstest"
)

// chainRig has a stream RESULTS, and counts the owners of one partition.
type chainRig struct {
	*natstest.Rig
	store  *Stream
	owners int
}

const markers = "commits.RESULTS.IN.millrace.0"

func newChainRig(at *natstest.Rig, c jetstream.StreamConfig) *chainRig {
	at.Helper()
	c.Name, c.Subjects, c.AllowAtomicPublish, c.AllowBatchPublish = "RESULTS", []string{"results.>", "commits.RESULTS.>"}, true, true
	at.Create(c)
	s := storeOn(at)
	s.Rollup = c.AllowRollup
	return &chainRig{Rig: at, store: s}
}

func storeOn(at *natstest.Rig) *Stream {
	at.Helper()
	singles := natstest.Must(NewWindowed(jsapi.API{}, 0, at.NC))(at)
	return &Stream{Name: "RESULTS", Subject: markers, Publisher: singles, JS: at.JS}
}

// open begins a lease of a new owner.
func (r *chainRig) open(way Way) *Chain {
	r.Helper()
	r.owners++
	o := ChainOptions{Owner: fmt.Sprint("owner-", r.owners), Created: created, Way: way, Again: always}
	c, _, err := OpenChains(r.Context(), o, r.store, nil)
	natstest.OK(r, err)
	return c
}

func always(context.Context, Markers, int, error) bool { return true }

// openAt begins a lease of a new owner, which must find the position of an input.
func (r *chainRig) openAt(way Way, input uint64) *Chain {
	r.Helper()
	c := r.open(way)
	if at, ok := c.Found(); !ok || at != position(input) {
		r.Errorf("owner %d finds %v, %v, want input %d", r.owners, at, ok, input)
	}
	return c
}

// openNew begins a lease of a new owner, which must find no marker.
func (r *chainRig) openNew(way Way) *Chain {
	r.Helper()
	c := r.open(way)
	if at, ok := c.Found(); ok {
		r.Errorf("owner %d finds %v, want nothing", r.owners, at)
	}
	return c
}

// wantOver checks that a chain stores no results and ends with an error.
func (r *chainRig) wantOver(c *Chain, first, last uint64, why error) {
	r.Helper()
	if stored, err := c.Commit(r.Context(), Batch{Messages: batch(first, last), At: position(last)}); !errors.Is(err, why) || !EndsChain(err) || count(stored) != 0 {
		r.Errorf("an owner stores %d results and ends with %v, want %v", count(stored), err, why)
	}
}

// done reports whether the chain finds the result of an input among the leftovers of earlier owners. m is its last message.
func (r *chainRig) done(c *Chain, input uint64, m *nats.Msg) bool {
	r.Helper()
	done, parts, err := c.Leftovers().Find(r.Context(), position(input), m.Subject, IDOf(m.Header))
	if err != nil || len(parts) > 0 {
		r.Fatal(parts, err)
	}
	return done
}

func batch(first, last uint64) (msgs []*nats.Msg) {
	for input := first; input <= last; input++ {
		id := nats.Header{jetstream.MsgIDHeader: {fmt.Sprint("IN:", input)}}
		msgs = append(msgs, &nats.Msg{Subject: fmt.Sprint("results.", input%7), Header: id, Data: []byte("result")})
	}
	return msgs
}

// commit stores results and fails the test if it can't.
func (r *chainRig) commit(c *Chain, first, last uint64) {
	r.Helper()
	msgs := batch(first, last)
	if stored, err := c.Commit(r.Context(), Batch{Messages: msgs, At: position(last)}); err != nil || count(stored) != len(msgs) {
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
func (r *chainRig) want(n uint64) {
	r.Helper()
	var ids []string
	for _, m := range r.Stored("RESULTS") {
		if !strings.HasPrefix(m.Subject, markers) {
			ids = append(ids, IDOf(m.Header))
		}
	}
	var want []string
	for _, m := range batch(1, n) {
		want = append(want, IDOf(m.Header))
	}
	if !slices.Equal(ids, want) {
		r.Errorf("the stream has %q, want the results of %d inputs in order", ids, n)
	}
}

func eachWay(t *testing.T, test func(t *testing.T, r *chainRig, way Way)) {
	queue := jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy, AllowRollup: true}
	t.Run("fast", func(t *testing.T) {
		t.Parallel()
		test(t, newChainRig(natstest.New(t), jetstream.StreamConfig{}), Fast)
	})
	t.Run("atomic", func(t *testing.T) {
		t.Parallel()
		test(t, newChainRig(natstest.New(t), jetstream.StreamConfig{}), Atomic)
	})
	t.Run("atomic, a work queue with rollup", func(t *testing.T) { t.Parallel(); test(t, newChainRig(natstest.New(t), queue), Atomic) })
}

// TestThreeReplicas repeats the tests of owners on a cluster of three servers.
func TestThreeReplicas(t *testing.T) {
	t.Parallel()
	urls := natstest.Cluster(t, 3)
	for name, test := range map[string]func(t *testing.T, r *chainRig, way Way){
		"owners": owners, "stale owner": staleOwner, "without markers": withoutMarkers, "dead letters": deadLetters,
	} {
		t.Run(name, func(t *testing.T) {
			r := newChainRig(natstest.At(t, urls), jetstream.StreamConfig{Replicas: 3})
			test(t, r, Atomic)
			r.Delete("RESULTS")
		})
	}
}

func TestOwnersOfAPartition(t *testing.T) { t.Parallel(); eachWay(t, owners) }

func owners(t *testing.T, r *chainRig, way Way) {
	first := r.openNew(way)
	r.commit(first, 1, 100)
	r.commit(first, 101, 101)
	r.commit(first, 102, 900)
	second := r.openAt(way, 900)
	r.wantOver(first, 901, 950, ErrFenced)
	if r.done(second, 901, batch(901, 901)[0]) {
		t.Error("a result is found that isn't stored")
	}
	r.commit(second, 901, 960)
	natstest.Must(second.Commit(t.Context(), Batch{Messages: nil, At: position(970)}))(t)
	r.openAt(way, 970)
	r.want(960)
}

// TestABatchWithoutItsEnd stores only the first messages of a fast batch, without the last ones and the marker.
func TestABatchWithoutItsEnd(t *testing.T) {
	t.Parallel()
	r := newChainRig(natstest.New(t), jetstream.StreamConfig{MaxMsgSize: 1000})
	first := r.open(Fast)
	r.commit(first, 1, 10)
	msgs := batch(11, 20)
	msgs[6].Data = make([]byte, 2000)
	stored, err := first.Commit(t.Context(), Batch{Messages: msgs, At: position(20)})
	if count(stored) != 6 || !Unstorable(err) || EndsChain(err) {
		t.Fatalf("%v are stored: %v", stored, err)
	}
	second := r.openAt(Fast, 10)
	for input := uint64(11); input <= 17; input++ {
		if done := r.done(second, input, batch(input, input)[0]); done != (input <= 16) {
			t.Errorf("input %d is done: %v", input, done)
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
// more is set, send skips an answer that only confirms the start of the batch.
func (r *chainRig) send(marker uint64, i int, m *nats.Msg, more bool) string {
	r.Helper()
	inbox := r.NC.NewInbox()
	answers := natstest.Must(r.NC.SubscribeSync(inbox + ".>"))(r)
	defer func() { _ = answers.Unsubscribe() }()
	reply := fmt.Sprintf("%s.%s.1.fail.%d.%d.$FI", inbox, batchID(marker), i+1, min(i, 1))
	natstest.OK(r, r.NC.PublishMsg(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data, Reply: reply}))
	for {
		answer := natstest.Must(answers.NextMsgWithContext(r.Context()))(r)
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
			r := newChainRig(natstest.New(t), jetstream.StreamConfig{})
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
			for r.done(second, next, batchOf(next, next)[0]) {
				next++
			}
			if next != 11+half-1 {
				t.Errorf("the second owner continues with input %d", next)
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

func staleOwner(t *testing.T, r *chainRig, way Way) {
	first := r.open(way)
	r.commit(first, 1, 10)
	second := r.open(way)
	r.commit(second, 11, 15)
	r.wantOver(first, 11, 20, ErrFenced)
	r.commit(second, 16, 16)
	r.want(16)
}

// TestAStreamThatTakesNoFastBatchesAnyMore disables fast batches before the next owner takes over.
func TestAStreamThatTakesNoFastBatchesAnyMore(t *testing.T) {
	t.Parallel()
	r := newChainRig(natstest.New(t), jetstream.StreamConfig{})
	first := r.open(Fast)
	r.commit(first, 1, 10)
	r.Change("RESULTS", func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false })
	second := r.openAt(Atomic, 10)
	r.commit(second, 11, 20)
	r.wantOver(first, 11, 20, ErrFenced)
	r.want(20)
}

// TestAnExpiredMarker stores a delete marker, which the server may store in place of an expired commit marker.
func TestAnExpiredMarker(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, r *chainRig, way Way) {
		r.commit(r.open(way), 1, 3)
		expired := r.Put(&nats.Msg{Subject: markers, Header: nats.Header{"Nats-Marker-Reason": {"MaxAge"}}}).Sequence
		if last, err := r.store.Last(t.Context()); err != nil || last.At != expired {
			t.Fatalf("the last marker is at %d: %v, want the delete marker at %d", last.At, err, expired)
		}
		r.commit(r.openNew(way), 4, 5)
	})
}

func TestAStreamWithoutItsMarkers(t *testing.T) { t.Parallel(); eachWay(t, withoutMarkers) }

func withoutMarkers(t *testing.T, r *chainRig, way Way) {
	c := r.open(way)
	r.commit(c, 1, 10)
	natstest.OK(t, r.Stream("RESULTS").Purge(t.Context()))
	r.wantOver(c, 11, 20, ErrLost)
	r.openNew(way)
}

func TestDeadLettersOfAChain(t *testing.T) { t.Parallel(); eachWay(t, deadLetters) }

func deadLetters(t *testing.T, r *chainRig, way Way) {
	whole, record := Letter{Input: position(12), Record: WholeMessage}, Letter{Input: position(15), Record: 9}
	first := r.open(way)
	r.commit(first, 1, 10)
	natstest.OK(t, first.CommitLetters(t.Context(), batch(11, 11), []Letter{whole}, position(10)))
	natstest.OK(t, first.CommitLetters(t.Context(), batch(12, 12), []Letter{record}, position(10)))
	second := r.openAt(way, 10)
	if got, want := second.Letters(), (Letters{}).add([]Letter{whole, record}); !reflect.DeepEqual(got, want) {
		t.Errorf("the second owner has the letters %v, want %v", got, want)
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
	wantFence(t, func(reply string) []string {
		switch {
		case strings.HasSuffix(reply, ".4.$FI"):
			return []string{`{"type":"gap","last_seq":2,"seq":9}`, `{"type":"ack","seq":1,"msgs":1}`}
		case !strings.HasSuffix(reply, ".$FI"):
			return []string{`{"stream":"RESULTS","seq":9}`}
		}
		return nil
	})
}

// wantFence stores a fence on a simulated server, which has stored it at sequence 9. answers returns the server's answers to a request
// with the given reply subject.
func wantFence(t *testing.T, answers func(reply string) []string) {
	t.Helper()
	r := natstest.New(t)
	natstest.Must(r.NC.Subscribe(markers, func(m *nats.Msg) {
		for _, answer := range answers(m.Reply) {
			_ = r.NC.Publish(m.Reply, []byte(answer))
		}
	}))(t)
	if at, err := storeOn(r).Write(t.Context(), Fast, 7, nil, &Marker{}); at != 9 || err != nil {
		t.Errorf("the fence is stored at %d: %v", at, err)
	}
}

// TestAStreamThatTakesFastBatchesAgain simulates a server that first refuses fast batches, so a fence is stored
// alone. Then the server accepts them again and still has a batch of the previous owner. A second fast marker ends
// that batch. A real server can't be made to change at the right moment.
func TestAStreamThatTakesFastBatchesAgain(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{"none are allowed": `10205`, "too many are open": `10211`} {
		refusal := `{"error":{"code":400,"err_code":` + code + `}}`
		for end, last := range map[string]string{
			"a batch is open":  `{"type":"gap","last_seq":2,"seq":9}`,
			"none is open":     `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 9"}}`,
			"it still refuses": refusal,
		} {
			t.Run(name+", "+end, func(t *testing.T) {
				t.Parallel()
				var requests []string // written by the subscription, which has handled all requests once the fence is stored
				wantFence(t, func(reply string) []string {
					switch {
					case strings.HasSuffix(reply, ".4.$FI"):
						return nil // a status message, because the answer is slow
					case !strings.HasSuffix(reply, ".$FI"):
						requests = append(requests, "alone")
						return []string{`{"stream":"RESULTS","seq":9}`}
					}
					answer := last
					if len(requests) == 0 {
						answer = refusal
					}
					requests = append(requests, "fast")
					return []string{answer}
				})
				if want := []string{"fast", "alone", "fast"}; !slices.Equal(requests, want) {
					t.Errorf("the fence is sent %q, want %q", requests, want)
				}
			})
		}
	}
}

// TestTheLastInputOfSeveralBatches shows that the highest input of all batches counts. If an earlier batch was not
// stored, a later batch may have fewer inputs.
func TestTheLastInputOfSeveralBatches(t *testing.T) {
	t.Parallel()
	r := newChainRig(natstest.New(t), jetstream.StreamConfig{})
	for _, until := range []string{"20", "10", "15"} {
		r.Put(&nats.Msg{Subject: markers + begin, Header: nats.Header{headerUntil: {until}}})
	}
	for _, c := range []struct{ behind, before, want uint64 }{{0, 4, 20}, {0, 1, 20}, {1, 4, 15}, {1, 2, 10}, {3, 4, 0}} {
		if until, err := r.store.Begun(r.Ctx(), c.behind, c.before); err != nil || until != c.want {
			t.Errorf("after %d and before %d: up to input %d, %v, want %d", c.behind, c.before, until, err, c.want)
		}
	}
}
