package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// The tests of this file inject a fault while publishers store inputs as fast as the server accepts them. Streams,
// consumers and settings are the workers' defaults. Another client creates and deletes temporary consumers on both
// streams all the time. With hundreds of thousands of messages, a server behaves differently than with a few.

const (
	// loaded is the number of inputs that are published around a fault.
	loaded = 400_000

	// publishers is the number of connections that publish at the same time.
	publishers = 4
)

// loadSetup is a setup in which a fault is injected under full load.
type loadSetup struct {
	servers int
	mode    string
}

func (l loadSetup) String() string { return fmt.Sprintf("R%d/%s", l.servers, l.mode) }

// eachLoaded injects a fault under full load, in both delivery modes, on one server and on three.
func eachLoaded(t *testing.T, fault string, inject func(r *rig, l *onslaught)) {
	need(t)
	t.Parallel()
	for _, servers := range []int{1, replicas} {
		for _, mode := range modes {
			t.Run(loadSetup{servers, mode}.String(), func(t *testing.T) {
				r := newRig(t, mode)
				r.byDefault()
				r.serve(servers)
				r.work(2)
				defer r.lookAround()()
				l := r.beginStorm()
				inject(r, l)
				l.wait()
				l.wantEachOnce()
				r.t.Logf("%s, R%d, %s: %d inputs", fault, servers, mode, l.stored())
			})
		}
	}
}

// beginStorm starts to publish all inputs of a test, and returns when a quarter of them is stored.
func (r *rig) beginStorm() *onslaught {
	r.t.Helper()
	if len(r.servers) > 1 {
		r.until("all streams are replicated", r.isReplicated)
	}
	l := r.storm(loaded)
	l.await(loaded / 4)
	return l
}

func TestLoadWorkerKilled(t *testing.T) {
	eachLoaded(t, "SIGKILL of a worker", func(r *rig, _ *onslaught) { r.replaceWorker() })
}

func TestLoadAllWorkersKilled(t *testing.T) {
	eachLoaded(t, "SIGKILL of all workers, 150,000 inputs later others", func(r *rig, l *onslaught) { l.killWorkers() })
}

// killWorkers kills the two workers, and starts two others when 150,000 more inputs are stored.
func (o *onslaught) killWorkers() {
	o.r.t.Helper()
	for _, w := range o.r.workers[:2] {
		w.kill()
	}
	o.r.workers = o.r.workers[2:]
	o.await(o.stored() + 150_000)
	o.r.work(2)
}

func TestLoadWorkersReplaced(t *testing.T) {
	eachLoaded(t, "SIGKILL of a worker, again and again", func(r *rig, l *onslaught) {
		for l.stored() < loaded*3/4 {
			r.replaceWorker()
			r.pass(time.Now(), time.Second)
		}
	})
}

func TestLoadServerKilled(t *testing.T) {
	eachLoaded(t, "SIGKILL of a server that leads the input stream", func(r *rig, _ *onslaught) {
		s := r.servers[0]
		if len(r.servers) > 1 {
			s = r.leader(inputStream)
		}
		s.kill()
		s.start(r.t)
		r.until("the server is back", r.jetStreamAnswers)
	})
}

// byDefault makes workers use the default settings.
func (r *rig) byDefault() {
	r.removing()
	r.set("MILLRACE_ACK_WAIT=30s", "MILLRACE_MAX_DELIVER=10", "MILLRACE_DRAIN_TIMEOUT=25s")
}

// onslaught is a set of feeds that publish at full speed.
type onslaught struct {
	r     *rig
	feeds []*feed
}

// storm starts to publish n inputs at full speed.
func (r *rig) storm(n int) *onslaught { return r.stormOf(n, r.smallInputs) }

// stormOf starts to publish n inputs at full speed. inputs has the same contract as smallInputs.
func (r *rig) stormOf(n int, inputs func(first int) func(i int) *nats.Msg) *onslaught {
	r.t.Helper()
	r.lead = n // publishers don't wait for workers
	l := &onslaught{r: r}
	for i := range publishers {
		l.feeds = append(l.feeds, r.feed(n/publishers, inputs(i*n/publishers)))
	}
	return l
}

// loadSubjects is the number of subjects of smallInputs.
const loadSubjects = 64

// smallInputs returns a function that creates the i-th input from number first on. Inputs have 256 bytes. They use
// loadSubjects subjects, so that every partition has some inputs.
func (r *rig) smallInputs(first int) func(i int) *nats.Msg {
	return func(i int) *nats.Msg {
		n := first + i
		return &nats.Msg{Subject: fmt.Sprintf("ingest.load.%d", n%loadSubjects), Data: r.smallInput(n), Header: nats.Header{"Input": {strconv.Itoa(n)}}}
	}
}

func (r *rig) smallInput(n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], r.seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(n))
	payload := make([]byte, 256)
	_, _ = rand.NewChaCha8(key).Read(payload) // never fails
	return payload
}

func (o *onslaught) stored() (n int) {
	for _, f := range o.feeds {
		n += int(f.stored.Load())
	}
	return n
}

// await waits until n inputs are stored, or all inputs if there are fewer.
func (o *onslaught) await(n int) {
	o.r.t.Helper()
	o.r.until(fmt.Sprint(n, " inputs are stored"), func() bool { return o.stored() >= min(n, loaded) })
}

func (o *onslaught) wait() {
	o.r.t.Helper()
	for _, f := range o.feeds {
		f.wait()
	}
}

// wantEachOnce waits until every input is settled. It checks that each input has exactly one result, that the result is
// correct, and that the workers have removed the inputs.
func (o *onslaught) wantEachOnce() {
	o.r.t.Helper()
	last := o.end()
	o.wantOutcomes(last, o.r.outputs(), o.right)
	o.r.wantSecondOpinion()
}

// end waits until every input is settled and removed, and stops the workers. It returns the last sequence of the input
// stream.
func (o *onslaught) end() uint64 {
	r := o.r
	r.t.Helper()
	r.awaitFinished()
	r.until("processed inputs are removed", func() bool {
		state, ok := r.state(inputStream)
		return ok && state.Msgs == 0
	})
	state, _ := r.state(inputStream)
	r.retire()
	for i := range r.starts { // no input was lost, so a report of a loss is incorrect
		if lines, err := os.ReadFile(filepath.Join(r.dir, fmt.Sprintf("worker-%d.log", i+1))); err != nil || bytes.Contains(lines, []byte("more inputs are acknowledged than")) {
			r.t.Errorf("worker %d reports a loss: %v", i+1, err)
		}
	}
	return state.LastSeq
}

// right reports whether a message is the correct result of the n-th input.
func (o *onslaught) right(n int, m jetstream.Msg) bool {
	return bytes.Equal(m.Data(), o.r.reference(o.r.smallInput(n)))
}

// wantOutcomes checks the messages in these streams. Each sequence up to last, and each input, must have exactly one
// correct message.
func (o *onslaught) wantOutcomes(last uint64, streams []string, right func(n int, m jetstream.Msg) bool) {
	r := o.r
	r.t.Helper()
	sequences, inputs := make([]uint8, last+1), make([]uint8, o.stored())
	wrong := 0
	for _, stream := range streams {
		r.read(stream, func(_ uint64, m jetstream.Msg) {
			sequence, err := strconv.ParseUint(m.Headers().Get(results.HeaderSequence), 10, 64)
			n, err2 := strconv.Atoi(m.Headers().Get("Input"))
			if err != nil || err2 != nil || sequence > last || n >= len(inputs) || !right(n, m) {
				wrong++
				return
			}
			sequences[sequence] = min(sequences[sequence]+1, 2)
			inputs[n] = min(inputs[n]+1, 2)
		})
	}
	lost, doubled := tallyOf(sequences[1:])
	lostInputs, doubledInputs := tallyOf(inputs)
	if lost+doubled+lostInputs+doubledInputs+wrong > 0 || len(inputs) == 0 {
		r.t.Errorf("%v: of %d sequences %d are lost and %d doubled; of %d inputs %d are lost and %d doubled; %d messages are wrong",
			streams, last, lost, doubled, len(inputs), lostInputs, doubledInputs, wrong)
	}
}

// tallyOf returns the number of counts that are 0, and of counts that are more than 1.
func tallyOf(counts []uint8) (none, several int) {
	return bytes.Count(counts, []byte{0}), bytes.Count(counts, []byte{2})
}

// lookAround creates and deletes temporary consumers on the input stream and the result stream until stop is called.
// Programs that inspect streams do the same.
func (r *rig) lookAround() (stop func()) {
	js, err := jetstream.New(r.connect())
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	looks := 0
	go func() {
		defer close(ended)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			if look(ctx, js, []string{inputStream, resultStream}[i%2], jetstream.DeliverPolicy(i/2%2)) == nil {
				looks++
			}
			<-tick.C
		}
	}()
	return func() {
		cancel()
		<-ended
		if looks == 0 {
			r.t.Error("no temporary consumer was created, so the test shows nothing about them")
		}
	}
}

// look reads a few messages of a stream with a temporary consumer, and then deletes the consumer.
func look(ctx context.Context, js jetstream.JetStream, stream string, from jetstream.DeliverPolicy) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{DeliverPolicy: from, AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Minute})
	if err != nil {
		return err
	}
	if batch, err := c.FetchNoWait(10); err == nil {
		for range batch.Messages() {
		}
	}
	return js.DeleteConsumer(ctx, stream, c.CachedInfo().Name)
}
