package telemetry

import (
	"cmp"
	"net/http"
	"net/http/pprof"
	"time"

	"millrace/internal/streams"
)

// The range and the default of the query parameter seconds of /trace.
const (
	maxTraceSeconds     = 3600
	defaultTraceSeconds = 10
)

// Debug holds the sources of the debug pages.
type Debug struct {
	Timeline *Timeline
	Build    Build
	Bounds   LiveBounds             // bounds of batches, the same on every device
	Stats    func() []streams.Stats // reads every pipeline; nil for none
	Watch    *Watch                 // observes whether the worker is ready; nil: the page shows that it is
	Feed     Feed                   // where payloads come from; the zero Feed hides that part of the page
	CPU      CPU                    // whether the CPU computes
	Job      func() Job             // reads the work that is done; nil hides that part of the page
	Kept     func() Kept            // reads what the input stream must keep; nil: the page says nothing about it
}

// Feed describes where the worker's payloads come from and how to send one. The page shows all of it, so it must hold no
// credentials.
type Feed struct {
	Server   string   `json:"server"` // addresses, comma separated
	Stream   string   `json:"stream"`
	Subjects []string `json:"subjects"` // filters
	Results  string   `json:"results"`  // the stream of the results
	Send     string   `json:"send"`     // the command that sends one payload
	Follow   string   `json:"follow"`   // the command that prints results as they arrive
	Login    []string `json:"login"`    // the variables that both commands need in order to log in, as the worker does
}

// CPU says why the CPU computes instead of a GPU.
type CPU string

// The values of CPU.
const (
	NotOnCPU    CPU = ""
	CPUFallback CPU = "fallback" // no GPU is usable
	CPUChosen   CPU = "chosen"   // the configuration asks for it
)

// DebugHandler serves the debug pages: the timeline page at /, its data at /timeline, the timeline as a trace at
// /trace?seconds=N, and Go's profiles under /debug/pprof/. It is meant for trusted clients, because profiles expose the
// internals of the process.
func DebugHandler(d Debug) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", newPage(d.Build))
	mux.HandleFunc("GET /timeline", d.serveLive)
	mux.HandleFunc("GET /trace", d.serveTrace)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return localOnly(mux)
}

func (d Debug) serveTrace(w http.ResponseWriter, r *http.Request) {
	seconds, err := wholeNumber(r.URL.Query().Get("seconds"), 1, maxTraceSeconds)
	if err != nil {
		http.Error(w, "seconds "+err.Error(), http.StatusBadRequest)
		return
	}
	seconds = cmp.Or(seconds, defaultTraceSeconds)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", `attachment; filename="millrace-trace.json"`)
	_ = d.Timeline.WriteTrace(w, time.Duration(seconds)*time.Second) // ignore a client that has disconnected
}
