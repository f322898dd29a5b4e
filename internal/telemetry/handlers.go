package telemetry

import (
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds for scrapes, which are rare and short. More concurrent scrapes mean that one hangs.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// index lists the pages of Handler.
const index = `/metrics  metrics in the Prometheus format
/healthz  liveness: 200, or 503 and why the worker must be restarted
/readyz   readiness: 200, or 503 and why the worker takes no payloads

The timeline is a page of another server: set MILLRACE_DEBUG_ADDR.
`

// Handler serves a list of its pages at /, /metrics in the Prometheus format, and /healthz and /readyz: 200 and "ok", or 503 and the reason.
func Handler(m *Metrics, h *Health) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, index) }) // ignore a client that has disconnected
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		Registry: m.registry, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
	}))
	mux.Handle("GET /healthz", probe(h.Live))
	mux.Handle("GET /readyz", probe(h.Ready))
	return mux
}

func probe(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n") // ignore a client that has disconnected
	})
}
