package ingest

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device"
	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

func (r *rig) wantNothingAcked(n int) {
	r.Helper()
	info := r.consumerInfo()
	if info.NumAckPending != n || info.AckFloor.Stream != 0 || r.tally.stored() != 0 {
		r.Errorf("%d of %d inputs unacknowledged, floor at %d, %d said to be stored; want all unacknowledged",
			info.NumAckPending, n, info.AckFloor.Stream, r.tally.stored())
	}
}

// notStored is the message that the worker logs after a failed attempt.
const notStored = "results could not be stored"

func TestNothingIsAckedWhileTheResultStreamIsMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	config := r.StreamConfig("RESULTS")
	r.Delete("RESULTS")
	const n = 50
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{BatchPayloads: 10})
	r.Log.Await(t, notStored)
	until(t, "everything is delivered", func() bool { return r.consumerInfo().Delivered.Stream == n })
	r.wantNothingAcked(n)

	r.Create(config)
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

func TestNothingIsAckedWhileTheResultStreamIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	config := r.StreamConfig("RESULTS")
	config.MaxMsgs, config.Discard = 10, jetstream.DiscardNew
	r.Create(config)
	const n = 40
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.Log.Await(t, notStored)
	r.tally.awaitStored(t, 10)
	until(t, "everything is delivered", func() bool { return r.consumerInfo().Delivered.Stream == n })
	if info := r.consumerInfo(); info.NumAckPending < n-10 {
		t.Errorf("%d inputs unacknowledged with room for 10 results, want at least %d", info.NumAckPending, n-10)
	}

	config.MaxMsgs = -1
	r.Create(config)
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

// TestWaitingForAFullResultStreamIsNoReasonToGiveUp shows that deliveries that wait in the client are not
// dead-lettered. While results cannot be stored, the server redelivers them after every AckWait, although they were
// never tried.
func TestWaitingForAFullResultStreamIsNoReasonToGiveUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.MaxDeliver, r.opts.AckWait = 1, time.Second
	r.provision()
	config := r.StreamConfig("RESULTS")
	config.MaxMsgs, config.Discard = 10, jetstream.DiscardNew
	r.Create(config)
	const n = 2000
	// One pull request covers all of them.
	short := func(i int) []byte { return document(i)[:min(len(document(i)), 20)] }
	r.publish(n, short)
	run := r.run(hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 10})
	until(t, "some of what waits is delivered again", func() bool {
		return r.consumerInfo().Delivered.Consumer > n+200
	})

	config.MaxMsgs = -1
	r.Create(config)
	r.awaitFinished(n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, short)
	if given := r.tally.count(inflight.DeadLettered); given != 0 {
		t.Errorf("%d payloads were dead-lettered that had only waited", given)
	}
}

func TestLostPublishAcksArePublishedAgainAndStoredOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.provision()
	r.loseAcks()
	const n = 300
	r.publish(n, document)
	run := r.prepare(hostDevice(t), streams.Options{BatchPayloads: 100})
	run.start()
	r.tally.awaitStored(t, n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	// The number of lost acknowledgements depends on the batching of results.
	if r.tally.count(inflight.Duplicate) == 0 {
		t.Error("no result was stored already when it was published again")
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

func TestConfirmedAcknowledgements(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.ConfirmAcks = true
	r.provision()
	const n = 1000
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{BatchPayloads: 300})
	r.tally.awaitStored(t, n)
	until(t, "every acknowledgement is confirmed", func() bool { return run.worker.Status().InHand == 0 })
	// No acknowledgement is in transit, so the test need not wait.
	if info := r.consumerInfo(); info.NumAckPending != 0 || info.AckFloor.Stream != n {
		t.Errorf("%d inputs unacknowledged, floor at %d; want all %d acknowledged", info.NumAckPending, info.AckFloor.Stream, n)
	}
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
	r.wantSettled(n)
}

// TestLostConfirmations shows that a lost confirmation does not fail an acknowledgement. The worker logs the loss and
// continues.
func TestLostConfirmations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.ConfirmAcks = true
	r.provision()
	proxy := r.behindProxy()
	run := r.prepare(hostDevice(t), streams.Options{})
	const n = 20
	r.publish(n, document)
	// A confirmation is an empty answer to a request. All other answers have a body.
	proxy.Lose(func(subject string, body []byte) bool {
		return bytes.HasPrefix([]byte(subject), []byte("_INBOX.")) && len(bytes.TrimSpace(body)) == 0
	})
	run.start()
	r.Log.Await(t, "an acknowledgement was not confirmed")
	r.tally.awaitStored(t, n)
	r.awaitFinished(n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
}

// TestResultsInBatchesAndOneByOne shows that the worker stores the same results whether or not its result stream
// accepts batches.
func TestResultsInBatchesAndOneByOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		batches bool
		says    string
	}{{"batches", true, "one commit a batch"}, {"one by one", false, "one publish a result"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Create(jetstream.StreamConfig{
				Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}, AllowBatchPublish: c.batches, Duplicates: time.Hour,
			})
			r.provision()
			const n = 2000
			r.publish(n, document)
			run := r.run(hostDevice(t), streams.Options{})
			r.tally.awaitStored(t, n)
			if err := run.drain(); err != nil {
				t.Fatalf("Run: %v", err)
			}
			if !r.Log.Has("results are stored with " + c.says) {
				t.Errorf("the log does not say %q", c.says)
			}
			r.wantAll(n, document)
			r.wantSettled(n)
		})
	}
}

// watch wraps a device's first operator. Tests use it to observe submitted batches and to delay their computation.
type watch struct {
	device.HostKernel
	submitted chan device.Shape // shapes of submissions; the first is the largest batch

	mu    sync.Mutex
	gate  chan struct{} // closed when batches may be computed
	plans chan struct{} // closed when batches may be planned; nil means planning is allowed
}

// watchedDevice opens a host device with a watch and returns both.
func watchedDevice(t testing.TB) (device.Device, *watch) {
	t.Helper()
	kernels, w := watchKernels(operator.HostKernels())
	return openHost(t, kernels), w
}

// watchKernels wraps the first of the kernels in a watch and returns both.
func watchKernels(kernels []device.HostKernel) ([]device.HostKernel, *watch) {
	w := &watch{HostKernel: kernels[0], submitted: make(chan device.Shape, 1024), gate: make(chan struct{})}
	close(w.gate)
	kernels[0] = w
	return kernels, w
}

func (w *watch) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := w.HostKernel.Bind(params)
	return &watchedKernel{b, w}, err
}

// hold prevents the computation of batches until open is called. It discards earlier submissions.
func (w *watch) hold(t testing.TB) (open func()) {
	gate := make(chan struct{})
	w.mu.Lock()
	w.gate = gate
	w.mu.Unlock()
	for len(w.submitted) > 0 {
		<-w.submitted
	}
	open = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(open)
	return open
}

// holdPlans prevents the planning of batches until open is called. Inputs that arrive earlier stay queued. A new
// pipeline plans its largest batch, so it must be created before holdPlans is called.
func (w *watch) holdPlans(t testing.TB) (open func()) {
	plans := make(chan struct{})
	w.mu.Lock()
	w.plans = plans
	w.mu.Unlock()
	open = sync.OnceFunc(func() { close(plans) })
	t.Cleanup(open)
	return open
}

// await returns once a batch of that many payloads and bytes has been submitted. A device may check a batch
// repeatedly, so batches that a test distinguishes must differ.
func (w *watch) await(t testing.TB, rows, bytes int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case shape := <-w.submitted:
			if shape.Rows == rows && shape.Bytes == bytes {
				return
			}
		case <-deadline:
			t.Fatalf("no batch of %d payloads and %d bytes was submitted in %v", rows, bytes, patience)
		}
	}
}

// awaitAny returns once any batch has been submitted. The number of payloads in the batch depends on their arrival.
func (w *watch) awaitAny(t testing.TB) {
	t.Helper()
	select {
	case <-w.submitted:
	case <-time.After(patience):
		t.Fatalf("no batch was submitted in %v", patience)
	}
}

type watchedKernel struct {
	device.BoundHostKernel
	w *watch
}

func (k *watchedKernel) Needs(s device.Shape) device.Needs {
	select {
	case k.w.submitted <- s:
	default: // no test is waiting
	}
	k.w.mu.Lock()
	plans := k.w.plans
	k.w.mu.Unlock()
	if plans != nil {
		<-plans
	}
	return k.BoundHostKernel.Needs(s)
}

func (k *watchedKernel) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	k.w.mu.Lock()
	gate := k.w.gate
	k.w.mu.Unlock()
	<-gate
	return k.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
}
