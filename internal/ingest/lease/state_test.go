package lease

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/history"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/results"
)

// TestIDsSayWhichMessageItIsThatWasRead shows that an input has the same id whether it is read from the stream or
// delivered by the consumer. See TestIDsSayWhichMessageItIs of package ingest.
func TestIDsSayWhichMessageItIsThatWasRead(t *testing.T) {
	t.Parallel()
	stored := time.Unix(1700000000, 123456789)
	read := (&storedInputs{stream: "IN", server: &consumerServer{stream: "IN"}}).delivery(&jetstream.RawStreamMsg{Sequence: 7, Time: stored.UTC()}, 3)
	if got := results.MessageID(&read); got != "IN:7:1700000000123456789" {
		t.Errorf("the id of a message that is read from the stream is %q", got)
	}
}

// TestOnlyInputsOfTheConsumerAreRead shows that only the consumer's own subjects are read. The stream's partition
// also has the subjects of other deployments.
func TestOnlyInputsOfTheConsumerAreRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n = 9
	r.Publish(0, n, func(i int) *nats.Msg { return &nats.Msg{Subject: fmt.Sprint("ingest.", i%3, ".a")} })
	stored := &storedInputs{server: r.idleLease().server, stream: r.topology.Stream, subjects: []string{"ingest.0.*", "ingest.2.>"}}
	var got []uint64
	for raw, err := range stored.between(r.Ctx(), 1, n) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, raw.Sequence)
	}
	if want := []uint64{3, 4, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("between 1 and %d, inputs %v are read, want %v", n, got, want)
	}
}

// TestReadingAReplicatedStream uses retention by limits and by interest. With limits, a temporary consumer with one
// replica delivers many messages at once and reports the end. With interest there is no temporary consumer, because
// its removal may remove inputs.
func TestReadingAReplicatedStream(t *testing.T) {
	t.Parallel()
	r := newRigOn(natstest.At(t, natstest.Cluster(t, 3)), 1)
	for _, interest := range []bool{false, true} {
		if interest {
			c := r.StreamConfig("INGEST")
			c.Retention = jetstream.InterestPolicy
			r.Create(c)
		}
		const n = 3 * readSingly
		before := r.Stream("INGEST").CachedInfo().State.LastSeq
		r.publish(n, document)
		there := r.Consumers("INGEST")
		reader := &streamReader{js: r.JS, inputs: r.NC, stream: "INGEST", filter: "0.>", refused: &atomic.Bool{}, log: slog.New(slog.DiscardHandler)}
		for i := range uint64(n) {
			raw, err := reader.read(r.Ctx(), before+i+1)
			if err != nil || raw == nil || raw.Sequence != before+i+1 {
				t.Fatalf("input %d: %v, %v", before+i+1, raw, err)
			}
		}
		if raw, err := reader.read(r.Ctx(), before+n+1); raw != nil || err != nil {
			t.Errorf("after the last input: %v, %v", raw, err)
		}
		if err := reader.proveEnd(r.Ctx(), before+n+1); err != nil {
			t.Error(err)
		}
		if interest {
			if now := r.Consumers("INGEST"); !slices.Equal(now, there) || !reader.refused.Load() {
				t.Errorf("interest retention: the reader has made consumers: %v, before %v", now, there)
			}
			continue
		}
		if err := reader.proveEnd(r.Ctx(), before+n); (err == nil || !strings.Contains(err.Error(), "finds none of them")) && !reader.refused.Load() {
			t.Errorf("proveEnd says that there is no input %d: %v", before+n, err)
		}
	}
}

// TestAFetchedInputThatIsLostIsReadSingly loses one of the inputs that a temporary consumer delivers.
func TestAFetchedInputThatIsLostIsReadSingly(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n, lost = readSingly + 10, readSingly + 4
	r.publish(n, document)
	var losses atomic.Int32
	loss := r.Proxy()
	loss.Lose(func(_ string, body []byte) bool {
		its := bytes.HasPrefix(body, document(lost-1))
		if its {
			losses.Add(1)
		}
		return its
	})
	reader := &streamReader{js: r.JS, inputs: r.Connect(loss.URL()), stream: "INGEST", filter: "0.>", refused: &atomic.Bool{}, log: r.Log.Logger()}
	for i := range uint64(n) {
		raw, err := reader.read(r.Ctx(), i+1)
		if err != nil || raw == nil {
			t.Fatalf("input %d isn't read: %v", i+1, err)
		}
		if raw.Sequence != i+1 || !bytes.Equal(raw.Data, document(int(i))) {
			t.Fatalf("input %d is read as number %d, with %d bytes", raw.Sequence, i+1, len(raw.Data))
		}
		if i == readSingly && (len(reader.ahead) == 0 || losses.Load() != 1) {
			t.Fatalf("%d inputs were fetched behind the first one, and %d were lost, want some and 1", len(reader.ahead), losses.Load())
		}
		if i == readSingly && reader.bulk != "" {
			t.Error("the reader goes on with the consumer that lost an input")
		}
	}
}

// This file has interleavings that the model of the lease found. Each of them once broke an invariant.

// inLeaseModel runs a script with three workers. No worker owns the partition when the script starts.
func inLeaseModel(t *testing.T, seed uint64, script func(m *leaseModel)) {
	t.Helper()
	m := newLeaseModel(history.New(seed), newModelLab(t), modelPolicies[1])
	m.addInputs(modelInputs)
	synctest.Test(t, func(*testing.T) {
		m.start()
		defer m.stop()
		script(m)
	})
	if m.broken != "" {
		t.Errorf("seed %d: %s", seed, m.broken)
	}
}

// leaveBehind delivers the first n inputs to an owner that dies at once.
func (m *leaseModel) leaveBehind(n int) {
	s := m.server
	for _, in := range s.inputs[:n] {
		s.pending[in] = false
		s.nextNumber++
		s.nextSequence = in + 1
	}
}

// locked calls do while it holds the scheduler's lock.
func (m *leaseModel) locked(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func (m *leaseModel) answerAll() {
	for synctest.Wait(); len(m.calls) > 0; synctest.Wait() {
		m.locked(m.answer)
	}
}

func (m *leaseModel) arriveAll() {
	for range 100 {
		m.locked(m.arrive)
	}
	synctest.Wait()
}

// TestALeaseTakesWhatADeadOwnerHad shows that an owner reads the deliveries of a dead predecessor from the stream.
// The server sends it only later inputs.
func TestALeaseTakesWhatADeadOwnerHad(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		inLeaseModel(t, seed, func(m *leaseModel) {
			m.leaveBehind(2)
			m.calmDown()
			m.handOvers()
		})
	}
}

// TestALeaseTakesInputsThatTheServerCouldNotSend simulates two inputs that the server could not send to the previous
// owner. It counts them as never delivered and sends them again, in either order. An acknowledgement of one input
// must not cover the other.
func TestALeaseTakesInputsThatTheServerCouldNotSend(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		inLeaseModel(t, 1, func(m *leaseModel) {
			s, w := m.server, m.workers[0]
			m.leaveBehind(2)
			m.locked(func() { m.give(w) })
			synctest.Wait()
			for _, i := range order {
				m.locked(func() { s.pending[s.inputs[i]] = true; s.deliver() })
				m.answerAll()
				m.arriveAll()
				m.answerAll()
			}
			for m.locked(m.ackArrives); len(m.acks) > 0; {
				m.locked(m.ackArrives)
			}
			if s.floorSequence != s.inputs[1] || s.results[s.inputs[0]] == "" || s.results[s.inputs[1]] == "" {
				m.violate("in the order %v: floor %d, results %v", order, s.floorSequence, s.results)
			}
		})
	}
}
