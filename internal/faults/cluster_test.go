package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
)

// supervisor stands for a Kubernetes node with one pod: it starts a worker again whenever it ends by itself, and says
// what kube-state-metrics would say of it: how often it was started again, and the exit code before that. It says too
// what DCGM would say of the device, so that what joins both has something to join.
type supervisor struct {
	r      *rig
	served *httptest.Server
	stop   chan struct{}
	done   chan struct{}

	mu     sync.Mutex
	worker *worker
	codes  []int // how it ended, each time that it was started again
}

// supervise starts a worker, and keeps it started until retire.
func (r *rig) supervise() *supervisor {
	r.t.Helper()
	s := &supervisor{r: r, worker: r.startWorker(), stop: make(chan struct{}), done: make(chan struct{})}
	s.served = httptest.NewServer(http.HandlerFunc(s.serve))
	go s.run()
	return s
}

// retire ends the worker for good.
func (s *supervisor) retire() {
	close(s.stop)
	<-s.done
	s.served.Close()
	if code := s.current().terminate(grace); code != 0 {
		s.r.t.Errorf("the worker ended with status %d after SIGTERM, want 0", code)
	}
}

func (s *supervisor) current() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worker
}

// exitCodes are how the worker ended, each time that it was started again.
func (s *supervisor) exitCodes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.codes)
}

// restarted is how often it was.
func (s *supervisor) restarted() int { return len(s.exitCodes()) }

func (s *supervisor) run() {
	defer close(s.done)
	for {
		w := s.current()
		select {
		case <-s.stop:
			return
		case <-w.done:
		}
		s.mu.Lock()
		s.codes = append(s.codes, w.cmd.ProcessState.ExitCode())
		s.worker = s.r.startWorker()
		s.mu.Unlock()
	}
}

// container is the labels by which kube-state-metrics names the worker's container.
const container = `namespace="gpu",pod="worker-0",container="worker"`

// dcgm are the metrics of DCGM that rules and dashboard know; the CPU device stands for a GPU of that name.
var dcgm = []string{
	"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_FB_USED",
	"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS",
}

// serve is the page that Prometheus scrapes. What it says of the GPU is zero: there is none.
func (s *supervisor) serve(to http.ResponseWriter, _ *http.Request) {
	codes := s.exitCodes()
	_, _ = fmt.Fprintf(to, "kube_pod_container_status_restarts_total{%s} %d\n", container, len(codes))
	if len(codes) > 0 {
		_, _ = fmt.Fprintf(to, "kube_pod_container_status_last_terminated_exitcode{%s} %d\n", container, codes[len(codes)-1])
	}
	for _, name := range dcgm {
		_, _ = fmt.Fprintf(to, "%s{UUID=\"host\",gpu=\"0\"} 0\n", name)
	}
}
