package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits for each connection. Go's handlers for profiles and execution traces extend the write deadline if necessary.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// Server serves HTTP on one address.
type Server struct {
	http    *http.Server
	address net.Addr
	log     *slog.Logger
	done    chan struct{}
}

// Listen binds address, in the form host:port, and serves handler from then on. Port 0 lets the system choose a port.
// The argument variable is the configuration variable that holds the address, for errors. Listen logs failures of
// requests. Error responses are JSON: {"error": TEXT, "status": NUMBER}.
func Listen(address, variable string, handler http.Handler, log *slog.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s is in use by another program: stop that, or set %s to another address", address, variable)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w: set %s to an address of this machine", address, err, variable)
	}
	s := &Server{
		http: &http.Server{
			Handler: withFailures(handler, log), ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout,
			WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
			ErrorLog: errorLog(log),
		},
		address: listener.Addr(), log: log, done: make(chan struct{}),
	}
	go s.serve(listener)
	return s, nil
}

// errorWriter logs each line that net/http writes about a connection.
type errorWriter struct{ log *slog.Logger }

// errorLog returns the log for net/http. Its lines contain client addresses, so each line is an attribute of the same
// message. The logger limits repetitions of that message.
func errorLog(log *slog.Logger) *stdlog.Logger { return stdlog.New(errorWriter{log}, "", 0) }

// Write implements io.Writer.
func (e errorWriter) Write(line []byte) (int, error) {
	e.log.Warn("HTTP server", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}

func (s *Server) serve(listener net.Listener) {
	defer close(s.done)
	if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("an HTTP server has stopped", "address", s.address.String(), "error", err)
	}
}

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.address }

// Close stops listening at once and lets requests finish until ctx is done. It then aborts the remaining requests and
// returns ctx's error. A second Close returns nil.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("closing HTTP on %s: %w", s.address, err), s.http.Close())
	}
	<-s.done
	return err
}

// Limits for scrapes, which are rare and short. More than maxScrapes concurrent scrapes occur only if a scrape hangs.
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

// Handler serves a list of its pages at / and metrics in the Prometheus format at /metrics. At /healthz and /readyz, it
// serves 200 and "ok", or 503 and the reason.
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

// failure is the JSON body of error responses on both servers. Error responses of probes and of Go's profiles are text,
// because their clients read text.
type failure struct {
	Error  string `json:"error"`  // description of the error, with advice for the client
	Status int    `json:"status"` // HTTP status
}

// maxFailure is the maximum length of an error text, in bytes. A longer text is truncated.
const maxFailure = 4 << 10

// readsText reports whether errors are sent as text for a route with the given pattern.
func readsText(pattern string) bool {
	return pattern == "GET /healthz" || pattern == "GET /readyz" || strings.HasPrefix(pattern, "/debug/pprof/")
}

// withFailures converts panics and error responses of next to failures, except error responses that readsText selects.
// It logs a panic with its stack. If the response has begun before the panic, it aborts the connection, so the client
// doesn't treat the response as complete.
func withFailures(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w, request: r}
		defer func() {
			why := recover()
			if err, ok := why.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(why) // intentional
			}
			if why != nil {
				log.Error("a request failed", "path", r.URL.Path, "panic", fmt.Sprint(why), "stack", string(debug.Stack()))
				if a.begun {
					panic(http.ErrAbortHandler)
				}
				a.status, a.text = http.StatusInternalServerError, []byte("the request failed inside the worker; its log says why: report it as a bug")
			}
			a.end()
		}()
		next.ServeHTTP(a, r)
	})
}

// answer is a ResponseWriter that holds back an error response, which end writes as a failure.
type answer struct {
	http.ResponseWriter
	request *http.Request
	begun   bool   // part of the response has been sent
	status  int    // status of the error that is held back; 0 if there is none
	text    []byte // text of that error
}

// Unwrap supports http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.begun || a.status != 0 {
		return // like net/http, but without a log line
	}
	if status >= http.StatusBadRequest && !readsText(a.request.Pattern) {
		a.status = status
		return
	}
	a.begun = status >= http.StatusOK // an informational status doesn't begin the response
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.begun = true
		return a.ResponseWriter.Write(p)
	}
	a.text = append(a.text, p[:min(len(p), maxFailure-len(a.text))]...)
	return len(p), nil
}

// end writes the error that was held back, if there is one.
func (a *answer) end() {
	if a.status == 0 {
		return
	}
	f := failure{Error: strings.TrimSpace(strings.ToValidUTF8(string(a.text), "")), Status: a.status}
	if f.Error == "" {
		f.Error = http.StatusText(a.status)
	}
	h := a.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	a.ResponseWriter.WriteHeader(a.status)
	_ = json.NewEncoder(a.ResponseWriter).Encode(f) // ignore a client that has disconnected
}

// localOnly rejects requests that a page from another site makes through a browser on this machine. Such a page can
// reach a server on loopback. It can't read the responses, but it can start profiles. With DNS rebinding, under a host
// name that resolves to this machine, it could also read them.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case onLoopback(r) && !isThisMachine(r.Host):
			http.Error(w, "the debug pages are available under localhost or 127.0.0.1, not under another name", http.StatusForbidden)
		case isCrossSite(r) && (r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Dest") != "document"):
			http.Error(w, "a page of another site may link to the timeline, but not request anything else", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isCrossSite reports whether a browser makes the request on behalf of another page. Pages from other ports of this
// machine count as other pages, too. A browser treats them as the same site with a different origin.
func isCrossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // not a browser, an address that the user entered, or our own page
		return false
	}
	return true
}

// onLoopback reports whether the request arrived at a loopback address.
func onLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// isThisMachine reports whether a request's host is localhost or an IP address. DNS rebinding requires another host
// name.
func isThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(host) != nil
}
