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

// failure is the body of every answer that is an error: a JSON object, on both servers. Two kinds of answers stay text, since what
// asks for them reads text: those of probes, and those of Go's profiles.
type failure struct {
	Error  string `json:"error"`  // what is wrong, and what to do where the client can do something
	Status int    `json:"status"` // of HTTP
}

// maxFailure bounds the text of an error, in bytes. The rest is cut off.
const maxFailure = 4 << 10

// readsText reports whether the errors of what the server's mux found for a request are text.
func readsText(pattern string) bool {
	return pattern == "GET /healthz" || pattern == "GET /readyz" || strings.HasPrefix(pattern, "/debug/pprof/")
}

// withFailures gives next's errors the form of failure, whoever made them, and answers a panic with one too. A panic is logged
// with its stack. Where an answer has begun already, the connection is cut instead, so that nobody takes it for whole.
func withFailures(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &answer{ResponseWriter: w, request: r}
		defer func() {
			why := recover()
			if err, ok := why.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(why) // asked for
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

// answer is a ResponseWriter that keeps back an error, to write it as a failure.
type answer struct {
	http.ResponseWriter
	request *http.Request
	begun   bool   // something is on its way to the client
	status  int    // of the error that is kept back, 0 for none
	text    []byte // its text
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.begun || a.status != 0 {
		return // as net/http does, without its line in the log
	}
	if status >= http.StatusBadRequest && !readsText(a.request.Pattern) {
		a.status = status
		return
	}
	a.begun = status >= http.StatusOK // what comes before is no answer yet
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

// end writes the error that was kept back, if there is one.
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
	_ = json.NewEncoder(a.ResponseWriter).Encode(f) // a client that has gone needs no answer
}
