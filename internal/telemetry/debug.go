package telemetry

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"millrace/internal/streams"
)

// Limits and default of the query parameter seconds of /trace.
const (
	maxTraceSeconds     = 3600
	defaultTraceSeconds = 10
)

// Debug holds the sources of the debug pages.
type Debug struct {
	Timeline *Timeline
	Build    Build
	Bounds   LiveBounds             // bounds of batches, the same on every device
	Stats    func() []streams.Stats // reads every pipeline; nil if there is none
	Watch    *Watch                 // observes the worker's readiness; nil means always ready
	Feed     Feed                   // source of the payloads; the zero Feed hides that part of the page
	CPU      CPU                    // reason why the CPU computes, or NotOnCPU
	Job      func() Job             // reads the progress of the worker; nil hides that part of the page
	Kept     func() Kept            // reads the inputs that the input stream must keep; nil hides that part of the page
	States   func() *States         // reads the states of a stateful operator; nil, or a nil result, hides that part of the page
}

// Feed describes the source of the worker's payloads and the command that sends a payload. The page shows all fields, so they
// must not contain credentials.
type Feed struct {
	Server   string   `json:"server"` // addresses, comma separated
	Stream   string   `json:"stream"`
	Subjects []string `json:"subjects"` // subject filters
	Results  string   `json:"results"`  // the stream of the results
	Send     string   `json:"send"`     // the command that sends one payload
	Follow   string   `json:"follow"`   // the command that prints results as they arrive
	Login    []string `json:"login"`    // the variables that both commands need to log in as the worker does
}

// CPU is the reason why the CPU computes instead of a GPU.
type CPU string

const (
	NotOnCPU    CPU = ""
	CPUFallback CPU = "fallback" // no GPU is usable
	CPUChosen   CPU = "chosen"   // the configuration selects the CPU
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

// The timeline page is one document without external parts. Its source is split into files by topic. The scripts share
// one scope. pageScripts has their order.
//
//go:embed page
var pageFiles embed.FS

var pageScripts = []string{"format.js", "model.js", "poll.js", "view.js", "chart.js", "draw.js", "panels.js", "job.js", "latest.js", "state.js", "detail.js", "controls.js"}

// page is the timeline page as the server sends it.
type page struct {
	document []byte
	policy   string // Content-Security-Policy
}

// newPage assembles the page. The files are embedded in the program, so an error in them is a bug and panics.
func newPage(build Build) *page {
	style := "\n" + pageFile("page.css")
	script := "\n\"use strict\";\n(() => {\n"
	for _, name := range pageScripts {
		script += pageFile(name)
	}
	script += "})();\n"
	var document bytes.Buffer
	err := template.Must(template.New("page").Parse(pageFile("page.html"))).Execute(&document, struct {
		Build
		Style  template.CSS
		Script template.JS
	}{build, template.CSS(style), template.JS(script)})
	if err != nil {
		panic(fmt.Sprintf("telemetry: the timeline page: %v", err))
	}
	return &page{document: document.Bytes(), policy: strings.Join([]string{
		"default-src 'none'", "script-src " + hashOf(script), "style-src " + hashOf(style),
		"connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
	}, "; ")}
}

func pageFile(name string) string {
	text, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(fmt.Sprintf("telemetry: the timeline page: %v", err))
	}
	return string(text)
}

// hashOf returns the CSP hash of an inline part. A browser runs only inline parts with a listed hash.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(p.document) // ignore a client that has disconnected
}
