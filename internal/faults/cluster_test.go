package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
)

// supervisor simulates a Kubernetes node with one pod. It restarts a worker that exits. Like kube-state-metrics, it
// serves the number of restarts and the last exit code. It also serves DCGM's metrics of the device, so that queries
// that join both kinds of metrics have data.
type supervisor struct {
	r      *rig
	served *httptest.Server
	stop   chan struct{}
	done   chan struct{}

	mu     sync.Mutex
	worker *worker
	codes  []int // the exit code before each restart
}

// supervise starts a worker, and restarts it until retire is called.
func (r *rig) supervise() *supervisor {
	r.t.Helper()
	s := &supervisor{r: r, worker: r.startWorker(), stop: make(chan struct{}), done: make(chan struct{})}
	s.served = httptest.NewServer(http.HandlerFunc(s.serve))
	go s.run()
	return s
}

func (s *supervisor) retire() {
	close(s.stop)
	<-s.done
	s.served.Close()
	s.r.stop(s.current())
}

func (s *supervisor) current() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worker
}

func (s *supervisor) exitCodes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.codes)
}

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

// container is the label set by which kube-state-metrics identifies the worker's container.
const container = `namespace="gpu",pod="worker-0",container="worker"`

// dcgm lists the DCGM metrics that the rules and the dashboard query. Their UUID label has the ID of the CPU device instead of a GPU's.
var dcgm = []string{
	"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_FB_USED",
	"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS",
}

// serve serves the page that Prometheus scrapes. The GPU's metrics are zero, because there is no GPU.
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
