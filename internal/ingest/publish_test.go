package ingest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natstest"
	"millrace/internal/streams"
)

// notStored is the message that the worker logs after a failed attempt.
const notStored = "results could not be stored"

// TestNothingIsAckedWhileResultsCannotBeStored uses a result stream that is missing, or has space for 10 results.
func TestNothingIsAckedWhileResultsCannotBeStored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(r *rig) (restore func())
		space int
	}{
		"missing": {func(r *rig) func() { return r.remove("RESULTS") }, 0},
		"full":    {func(r *rig) func() { return r.fill(10) }, 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := provisioned(t)
			restore := c.spoil(r)
			const n = 50
			r.publish(n, document)
			run := r.run(hostDevice(t), streams.Options{BatchPayloads: 10})
			r.Log.Await(t, notStored)
			r.tally.awaitStored(t, c.space)
			until(t, "everything is delivered", func() bool { return r.consumerInfo().Delivered.Stream == n })
			if info := r.consumerInfo(); info.NumAckPending < n-c.space || info.AckFloor.Stream > uint64(c.space) || r.tally.stored() != c.space {
				t.Errorf("%d of %d inputs unacknowledged, floor at %d, %d reported as stored, with space for %d results",
					info.NumAckPending, n, info.AckFloor.Stream, r.tally.stored(), c.space)
			}
			restore()
			run.finishAfter(n)
			r.wantAll(n, document)
			r.wantSettled(n)
		})
	}
}

// TestWaitingForAFullResultStreamIsNoReasonToGiveUp shows that deliveries that wait in the client are not
// dead-lettered. While results cannot be stored, the server redelivers them after every AckWait, although they were
// never tried.
func TestWaitingForAFullResultStreamIsNoReasonToGiveUp(t *testing.T) {
	r := provisioned(t, func(o *Options) { o.MaxDeliver, o.AckWait = 1, time.Second })
	empty := r.fill(10)
	const n = 2000
	// One pull request covers all of them.
	short := func(i int) []byte { return document(i)[:min(len(document(i)), 20)] }
	r.publish(n, short)
	run := r.run(hostDevice(t), streams.Options{Lanes: 1, BatchPayloads: 10})
	until(t, "some of what waits is delivered again", func() bool { return r.consumerInfo().Delivered.Consumer > n+200 })
	empty()
	r.awaitSettled()
	run.finish()
	r.wantAll(n, short)
}

func TestConfirmedAcknowledgements(t *testing.T) {
	r := provisioned(t, func(o *Options) { o.ConfirmAcks = true })
	const n = 1000
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{BatchPayloads: 300})
	r.tally.awaitStored(t, n)
	until(t, "every acknowledgement is confirmed", func() bool { return run.worker.Status().InHand == 0 })
	// No acknowledgement is in transit, so the test need not wait.
	if info := r.consumerInfo(); info.NumAckPending != 0 || info.AckFloor.Stream != n {
		t.Errorf("%d inputs unacknowledged, floor at %d; want all %d acknowledged", info.NumAckPending, info.AckFloor.Stream, n)
	}
	run.finish()
	r.wantAll(n, document)
	r.wantSettled(n)
}

// TestLostConfirmations shows that a lost confirmation does not fail an acknowledgement. The worker logs the loss and
// continues.
func TestLostConfirmations(t *testing.T) {
	r := provisioned(t, func(o *Options) { o.ConfirmAcks = true })
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
	r.awaitSettled()
	run.finish()
	r.wantAll(n, document)
}

// TestLongWorkIsKeptAlive delays one input for several times AckWait, on the device or because the result stream is
// missing or full. The worker must report progress every third of AckWait.
func TestLongWorkIsKeptAlive(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"on the device", "until its result is stored"} {
		t.Run(where, func(t *testing.T) {
			eachMode(t, 1, func(t *testing.T, r *rig) {
				r.opts.AckWait = time.Second
				if r.opts.Exclusive {
					r.opts.AckWait = 3 * time.Second
				}
				r.provision()
				heard := r.hear("$JS.ACK." + r.opts.Stream + "." + r.consumer() + ".>")
				payload := someBytes(10)
				d, w := watchedDevice(t)
				goOn, early := func() {}, 0
				if where != "on the device" && !r.opts.Exclusive {
					goOn = r.remove("RESULTS")
				}
				run := r.prepare(d, streams.Options{Lanes: 1})
				if where == "on the device" {
					goOn = w.hold(t)
				}
				run.start()
				if where != "on the device" && r.opts.Exclusive { // a lease begins only with a result stream
					early = 1
					r.publish(early, payload)
					r.awaitSettled()
					goOn = r.fill(int64(r.messages("RESULTS")))
				}
				r.publishFrom(early, early+1, payload)
				awaitProgress(t, heard, 5)
				goOn()
				run.finishAfter(early + 1)
				r.wantAll(early+1, payload)
				r.wantSettled(early + 1)
			})
		})
	}
}

// awaitProgress returns once the server has received n messages that report work in progress.
func awaitProgress(t testing.TB, heard <-chan *nats.Msg, n int) {
	t.Helper()
	deadline := time.After(patience)
	for told := 0; told < n; {
		select {
		case m := <-heard:
			if bytes.HasPrefix(m.Data, []byte("+WPI")) {
				told++
			}
		case <-deadline:
			t.Fatalf("told of progress %d times in %v, want %d", told, patience, n)
		}
	}
}

// In these tests acknowledgements are lost with connections. Delivery is at least once, so the server redelivers
// their inputs after AckWait. Each result is stored only once.

// soonRedelivered makes the server and the worker repeat lost messages soon.
func soonRedelivered(o *Options) { o.AckWait, o.publishTimeout = 2*time.Second, time.Second }

func TestServerRestartUnderLoad(t *testing.T) {
	r := provisioned(t, soonRedelivered)
	d, w := watchedDevice(t)
	const n = 1000
	r.publish(n, document)
	run := r.run(d, streams.Options{BatchPayloads: 50})
	r.tally.awaitStored(t, 100)
	r.Restart()
	r.tally.awaitFunc(t, "connections", 1, r.tally.reconnects)

	// Repeat with batches on the device and no batch being published.
	open := w.hold(t)
	r.publishFrom(n, n+100, document)
	r.Restart()
	open()
	r.tally.awaitFunc(t, "connections", 2, r.tally.reconnects)
	r.awaitSettled()
	run.finish()
	r.wantAll(n+100, document)
}

func (r *rig) behindProxy() *natstest.Proxy {
	r.Helper()
	p := r.Proxy()
	r.workerURL = p.URL()
	return p
}

// behindCutter makes the rig's workers connect through a proxy. cutAfter cuts all connections after n more messages
// to the workers.
func (r *rig) behindCutter() (cutAfter func(n int)) {
	r.Helper()
	p := r.behindProxy()
	var left atomic.Int64
	passed := make(chan struct{}, 1)
	p.Lose(func(string, []byte) bool {
		if left.Add(-1) == 0 {
			passed <- struct{}{}
		}
		return false
	})
	return func(n int) {
		r.Helper()
		left.Store(int64(n))
		select {
		case <-passed:
		case <-time.After(patience):
			r.Fatalf("%d of %d messages have not passed", left.Load(), n)
		}
		p.Cut()
	}
}

// isPubAck reports whether a message confirms that the result stream has stored a message.
func isPubAck(body []byte) bool { return bytes.HasPrefix(body, []byte(`{"stream":"RESULTS"`)) }

// loseAcks makes workers lose the first of every five acknowledgements of a publish. A short timeout makes them
// notice that soon.
func (r *rig) loseAcks() {
	acks := 0
	r.behindProxy().Lose(func(_ string, body []byte) bool {
		if !isPubAck(body) {
			return false
		}
		acks++
		return acks%5 == 1
	})
	r.opts.publishTimeout = 300 * time.Millisecond
}

// envServerDir is the environment variable that makes this program a server with its files in the given folder.
const envServerDir = "MILLRACE_TEST_SERVER_DIR"

// serveAlone runs a server until standard input ends. It prints the server's address and returns the exit status.
func serveAlone(dir string) int {
	s, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.URL())
	_, _ = io.Copy(io.Discard, os.Stdin) // standard input ends when the parent closes it
	s.Close()
	return 0
}

func newRigAlone(t testing.TB) *rig {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), envServerDir+"="+t.TempDir()), os.Stderr
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close() // ends the server
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not come up: %v", err)
	}
	return rigOf(natstest.At(t, strings.TrimSpace(url)))
}
