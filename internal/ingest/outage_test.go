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

// In these tests acknowledgements are lost with connections. Delivery is at least once, so the server redelivers
// their inputs after AckWait. Each result is stored only once.

func TestServerRestartUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = 2 * time.Second
	r.provision()
	d, w := watchedDevice(t)
	const n = 1000
	r.publish(n, document)
	r.opts.publishTimeout = time.Second
	run := r.prepare(d, streams.Options{BatchPayloads: 50})
	run.start()
	r.tally.awaitStored(t, 100)
	r.Restart()
	r.tally.awaitFunc(t, "connections", 1, r.tally.reconnects)

	// Repeat with batches on the device and no batch being published.
	open := w.hold(t)
	r.publishFrom(n, n+100, document)
	r.Restart()
	open()
	r.tally.awaitFunc(t, "connections", 2, r.tally.reconnects)
	r.tally.awaitStored(t, n+100)
	r.awaitFinished(n + 100)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n+100, document)
}

func TestConnectionCutUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = 2 * time.Second
	r.provision()
	proxy := r.behindProxy()
	const n = 2000
	r.publish(n, document)
	r.opts.publishTimeout = time.Second
	run := r.prepare(hostDevice(t), streams.Options{BatchPayloads: 50})
	run.start()
	for cut := range 3 {
		r.tally.awaitStored(t, 200*(cut+1))
		proxy.Cut()
		r.tally.awaitFunc(t, "connections", cut+1, r.tally.reconnects)
	}
	r.tally.awaitStored(t, n)
	r.awaitFinished(n)
	if err := run.drain(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	r.wantAll(n, document)
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
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	return newRigAt(t, strings.TrimSpace(url))
}

// This file has functions that change or read the server without the worker.

// storedAt returns the time when the input stream stored a message.
func (r *rig) storedAt(sequence uint64) time.Time {
	r.Helper()
	m, err := r.Stream(r.opts.Stream).GetMsg(r.Ctx(), sequence)
	if err != nil {
		r.Fatal(err)
	}
	return m.Time
}

// awaitFinished returns once all n inputs are settled, after any number of deliveries. The server processes
// acknowledgements some time after it has read them.
func (r *rig) awaitFinished(n int) {
	r.Helper()
	r.Until("every input is acknowledged", func() bool {
		info := r.consumerInfo()
		return info.NumPending == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == uint64(n)
	})
}

// wantSettled checks that all n inputs are settled and none was delivered twice.
func (r *rig) wantSettled(n int) {
	r.Helper()
	r.awaitFinished(n)
	if info := r.consumerInfo(); info.Delivered.Consumer != uint64(n) || info.NumRedelivered != 0 {
		r.Errorf("%d deliveries of %d inputs, %d redelivered; want one each", info.Delivered.Consumer, n, info.NumRedelivered)
	}
}

// settlements subscribes to the workers' acknowledgement messages. "+WPI" reports work in progress.
func (r *rig) settlements() <-chan *nats.Msg {
	r.Helper()
	heard := make(chan *nats.Msg, 1<<16)
	if _, err := r.NC.ChanSubscribe("$JS.ACK."+r.opts.Stream+"."+r.opts.Consumer+".>", heard); err != nil {
		r.Fatal(err)
	}
	if err := r.NC.Flush(); err != nil {
		r.Fatal(err)
	}
	return heard
}

// awaitProgress returns once the server has received n progress messages for an input.
func (r *rig) awaitProgress(heard <-chan *nats.Msg, n int) {
	r.Helper()
	deadline := time.After(patience)
	for told := 0; told < n; {
		select {
		case m := <-heard:
			if strings.HasPrefix(string(m.Data), "+WPI") {
				told++
			}
		case <-deadline:
			r.Fatalf("told of progress %d times in %v, want %d", told, patience, n)
		}
	}
}

// TestLongBatchIsKeptAlive holds a batch on the device for several times AckWait. The worker must report progress every third of
// AckWait.
func TestLongBatchIsKeptAlive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = time.Second
	r.provision()
	heard := r.settlements()
	d, w := watchedDevice(t)
	run := r.prepare(d, streams.Options{Lanes: 1})
	open := w.hold(t)
	payload := someBytes(10)
	r.publish(1, payload)
	run.start()
	w.await(t, 1, 10)
	r.awaitProgress(heard, 5)
	if r.tally.redelivered() != 0 || r.consumerInfo().NumRedelivered != 0 {
		t.Errorf("an input that is worked on was delivered again: %d seen by the worker, %d by the server",
			r.tally.redelivered(), r.consumerInfo().NumRedelivered)
	}
	open()
	r.tally.awaitStored(t, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantSettled(1)
	r.wantAll(1, payload)
}

// TestResultsThatWaitAreKeptAlive delays the publishing of a batch's results for several times AckWait.
func TestResultsThatWaitAreKeptAlive(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.AckWait = time.Second
	r.provision()
	heard := r.settlements()
	config := r.StreamConfig("RESULTS")
	r.Delete("RESULTS")
	payload := someBytes(10)
	r.publish(1, payload)
	run := r.run(hostDevice(t), streams.Options{})
	r.awaitProgress(heard, 5)
	r.Create(config)
	r.tally.awaitStored(t, 1)
	if err := run.drain(); err != nil {
		t.Fatal(err)
	}
	r.wantSettled(1)
	r.wantAll(1, payload)
}
