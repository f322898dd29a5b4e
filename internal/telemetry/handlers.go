package telemetry

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Scrapes are few and short; more than these at once mean that one hangs.
const (
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// The span of /trace in seconds: what it may be asked for, and what it gives unasked.
const (
	maxTraceSeconds     = 3600
	defaultTraceSeconds = 10
)

// Handler serves /metrics in Prometheus' format, and /healthz and /readyz: 200 and "ok", or 503 and why not.
func Handler(m *Metrics, h *Health) http.Handler {
	mux := http.NewServeMux()
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
		_, _ = io.WriteString(w, "ok\n") // a client that has gone needs no answer
	})
}

//go:embed index.html
var indexHTML string

var indexPage = template.Must(template.New("index").Parse(indexHTML))

// DebugHandler serves what a person looks at: an index at /, the timeline as a trace at /trace?seconds=N,
// and Go's profiles under /debug/pprof/. It is for trusted clients: profiles show the process's insides.
func DebugHandler(t *Timeline, build Build) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = indexPage.Execute(w, build) // a client that has gone needs no answer
	})
	mux.HandleFunc("GET /trace", func(w http.ResponseWriter, r *http.Request) { serveTrace(w, r, t) })
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func serveTrace(w http.ResponseWriter, r *http.Request, t *Timeline) {
	seconds := defaultTraceSeconds
	if asked := r.URL.Query().Get("seconds"); asked != "" {
		n, err := strconv.Atoi(asked)
		if err != nil || n < 1 || n > maxTraceSeconds {
			http.Error(w, fmt.Sprintf("seconds is %q: want a whole number from 1 to %d", asked, maxTraceSeconds), http.StatusBadRequest)
			return
		}
		seconds = n
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", `attachment; filename="millrace-trace.json"`)
	_ = t.WriteTrace(w, time.Duration(seconds)*time.Second) // a client that has gone needs no answer
}
