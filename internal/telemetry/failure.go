package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
)

// failure is the body of every error response, on both servers: a JSON object. Two kinds of responses stay text,
// because their clients read text: those of probes and those of Go's profiles.
type failure struct {
	Error  string `json:"error"`  // what is wrong, and what the client can do about it
	Status int    `json:"status"` // HTTP status
}

// maxFailure bounds the text of an error, in bytes. A longer text is cut off.
const maxFailure = 4 << 10

// readsText reports whether errors are sent as text for a route with that pattern.
func readsText(pattern string) bool {
	return pattern == "GET /healthz" || pattern == "GET /readyz" || strings.HasPrefix(pattern, "/debug/pprof/")
}

// withFailures converts all error responses of next to failures, including those of net/http, and also a panic. It logs
// a panic with its stack. If the response has already begun, it aborts the connection instead, so that the client
// doesn't take the response for complete.
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

// answer is a ResponseWriter that holds back an error response, in order to write it as a failure.
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
