package faults

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"millrace/internal/ingest/natstest"
)

const (
	// drainTimeout is the workers' own limit for finishing. A worker that exceeds the limit exits with a status other
	// than 0.
	drainTimeout = 20 * time.Second

	// ackWait is short, so that inputs are redelivered soon after a fault.
	ackWait = 2 * time.Second
)

// worker is a process of `worker run`, by default on the host device.
type worker struct {
	*process
	http *http.Client
}

// startWorker starts a worker that connects to the servers. It doesn't add the worker to the list of workers that must
// be alive.
func (r *rig) startWorker() *worker { return r.startWorkerAt(r.URL) }

// startWorkerAt starts a worker that connects to url, which may belong to a proxy.
func (r *rig) startWorkerAt(url string) *worker {
	r.t.Helper()
	// Every second worker has four connections and the other workers have one, so that both kinds run together.
	env := append(r.environment(url), fmt.Sprintf("MILLRACE_NATS_CONNECTIONS=%d", 1+3*(r.starts%2)))
	env = append(env, r.env...)
	if len(r.batches) > 0 {
		env = append(env, fmt.Sprintf("MILLRACE_BATCH_PAYLOADS=%d", r.batches[r.starts%len(r.batches)]))
	}
	r.starts++
	return &worker{
		process: start(r.t, r.dir, fmt.Sprintf("worker-%d", r.starts), r.binary, env, "run"),
		http:    &http.Client{Timeout: natstest.Patience},
	}
}

// environment returns the environment of workers that connect to url, without the entries of r.env. Set MILLRACE_DEVICE=cuda and the
// path of a kernel library in MILLRACE_KERNELS to run the tests on a GPU.
func (r *rig) environment(url string) (env []string) {
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "MILLRACE_") {
			env = append(env, e)
		}
	}
	return append(env, "MILLRACE_DEVICE="+cmp.Or(os.Getenv("MILLRACE_DEVICE"), "host"), "MILLRACE_KERNELS="+os.Getenv("MILLRACE_KERNELS"), "MILLRACE_NATS_URL="+url, "MILLRACE_HTTP_ADDR=127.0.0.1:0",
		"MILLRACE_LOG_FORMAT=json", "MILLRACE_PROVISION=true", "MILLRACE_ACK_WAIT="+ackWait.String(), "MILLRACE_MAX_DELIVER=1000",
		"MILLRACE_DRAIN_TIMEOUT="+drainTimeout.String(),
		// The audit reads the inputs. TestProvisionedRetention uses the defaults.
		"MILLRACE_STREAM_RETENTION=limits", "MILLRACE_STREAM_MAX_BYTES=0", "MILLRACE_RESULT_MAX_BYTES=0", "MILLRACE_DEADLETTER_MAX_BYTES=0")
}

// work starts n workers and waits until they take payloads. The first worker creates the streams.
func (r *rig) work(n int) {
	r.t.Helper()
	for range n {
		r.join(r.startWorker())
	}
}

// join adds a worker to the list of workers that must be alive, and waits until it takes payloads.
func (r *rig) join(w *worker) {
	r.t.Helper()
	r.workers = append(r.workers, w)
	r.until(w.name+" is ready", w.isReady)
}

// address returns the address on which the worker serves metrics. It returns "" until the worker serves.
func (w *worker) address() string {
	rest, ok := w.said(`"serving metrics and health"`, `"address":"`)
	if !ok {
		return ""
	}
	address, _, _ := strings.Cut(rest, `"`)
	return address
}

func (w *worker) isReady() bool {
	_, err := w.get("readyz")
	return err == nil
}

func (w *worker) get(page string) (string, error) {
	address := w.address()
	if address == "" {
		return "", fmt.Errorf("%s serves nothing yet", w.name)
	}
	answer, err := w.http.Get(address + page)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	_ = answer.Body.Close() // the test has read the part that it needs
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", page, answer.Status)
	}
	return string(text), err
}

// metric returns the sum of all series whose name and labels begin with series. It returns an error if there is no such
// series.
func (w *worker) metric(series string) (float64, error) {
	page, err := w.get("metrics")
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	lines := bufio.NewScanner(strings.NewReader(page))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasPrefix(name, series) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metrics: %q is not a number: %w", lines.Text(), err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("metrics: there is no %s", series)
	}
	return sum, lines.Err()
}

func (r *rig) mustMetric(w *worker, series string) float64 {
	r.t.Helper()
	v, err := w.metric(series)
	if err != nil {
		r.t.Fatal(err)
	}
	return v
}

// redelivered returns the number of received deliveries that were not the first of their input.
func (w *worker) redelivered() float64 {
	n, err := w.metric("millrace_redeliveries_total")
	if err != nil {
		return 0
	}
	return n
}

// retire stops all workers as a supervisor does.
func (r *rig) retire() {
	r.t.Helper()
	for _, w := range r.workers {
		r.stop(w)
	}
	r.workers = nil
}

// stop sends SIGTERM to a worker, which must exit with status 0. It first waits until the worker serves, because SIGTERM
// kills a process that has only just been started.
func (r *rig) stop(w *worker) {
	r.t.Helper()
	r.until(w.name+" serves or has ended", func() bool { return w.address() != "" || w.hasEnded() })
	if code := w.terminate(); code != 0 {
		r.t.Errorf("%s ended with status %d after SIGTERM, want 0", w.name, code)
	}
}
