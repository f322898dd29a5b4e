package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"millrace/internal/config"
	"millrace/internal/ingest/natsconn"
)

// logCommands logs the commands that send payloads to the embedded server and print their results. Nobody has configured anything for it, so its user
// may be new.
func (a *app) logCommands() {
	if !a.cfg.Embedded() {
		return
	}
	send, results := exchangeCommands(a.cfg, a.url, os.Args[0])
	a.log.Info("send a payload from another terminal", "command", send)
	a.log.Info("print the results", "command", results)
}

// exchangeCommands returns the commands for a shell that send a payload to the server at url, and print results. The log, the timeline page and
// `worker demo --keep` show them. program is the path of the worker. Each command has the variables that the worker was given and that the
// command reads, except those that hold credentials.
func exchangeCommands(cfg *config.Config, url, program string) (send, results string) {
	server := ""
	if url != "nats://"+embeddedAddr && natsconn.Redact(url) == url { // both use the embedded server by default
		server = "MILLRACE_NATS_URL=" + shellWord(url) + " "
	}
	command := func(names ...string) string {
		text := server
		for _, name := range names {
			if cfg.IsSet(name) {
				text += name + "=" + shellWord(os.Getenv(name)) + " "
			}
		}
		return text + calledAs(program)
	}
	send = "echo 'some text' | " + command("MILLRACE_STREAM", "MILLRACE_SUBJECTS") + " send"
	results = command("MILLRACE_SUBJECTS", "MILLRACE_RESULT_STREAM", "MILLRACE_RESULT_PREFIX", "MILLRACE_DEADLETTER_PREFIX", "MILLRACE_OPERATOR_PATH") +
		" results --follow"
	return send, results
}

// inCache matches the path of a program that `go run` built: in the cache, or in a temporary folder with earlier versions of Go.
var inCache = regexp.MustCompile(`/go-build\d*/`)

// calledAs returns how a shell calls the worker, given its path. If `go run` built the worker, the path is in Go's cache and nobody would
// recognize it.
func calledAs(path string) string {
	if inCache.MatchString(filepath.ToSlash(path)) {
		return "go run ./cmd/worker"
	}
	return shellWord(path)
}

// plainWord matches a text that a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./,:+@%-]+$`)

// shellWord quotes a text for a POSIX shell, if that is necessary.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
