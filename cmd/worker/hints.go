package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"millrace/internal/config"
	"millrace/internal/ingest/natsconn"
)

// logCommands logs the commands that send payloads to the embedded server and print their results. The embedded server
// needs no configuration, so its user may be new to Millrace.
func (a *app) logCommands() {
	if !a.cfg.Embedded() {
		return
	}
	send, results := exchangeCommands(a.cfg, a.url, os.Args[0])
	a.log.Info("send a payload from another terminal", "command", send)
	a.log.Info("print the results", "command", results)
}

// exchangeCommands returns the shell commands that send a payload to the server at url and print results. The log, the
// timeline page and `worker demo --keep` show them. program is the path of the worker. Each command begins with the
// worker's environment variables that the command reads, except credentials.
func exchangeCommands(cfg *config.Config, url, program string) (send, results string) {
	server := ""
	if url != "nats://"+embeddedAddr && natsconn.Redact(url) == url { // both commands use the embedded server by default
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

// inCache matches the path of a program that `go run` built. The path is in Go's cache, or in a temporary folder with
// earlier versions of Go.
var inCache = regexp.MustCompile(`/go-build\d*/`)

// calledAs returns the shell command that starts the worker at path. For a worker that `go run` built, it returns the
// `go run` command, because users wouldn't recognize a path in Go's cache.
func calledAs(path string) string {
	if inCache.MatchString(filepath.ToSlash(path)) {
		return "go run ./cmd/worker"
	}
	return shellWord(path)
}

// plainWord matches a text that needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./,:+@%-]+$`)

// shellWord quotes a text for a POSIX shell if necessary.
func shellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
