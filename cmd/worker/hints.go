package main

import (
	"os"
	"strings"

	"millrace/internal/config"
)

// logCommands logs the commands that send payloads to the embedded server and print their results. Nobody has configured anything for it, so its user
// may be new.
func (a *app) logCommands() {
	if !a.cfg.Embedded() {
		return
	}
	send, results := exchangeCommands(a.cfg, os.Args[0])
	a.log.Info("send a payload from another terminal", "command", send)
	a.log.Info("print the results", "command", results)
}

// exchangeCommands returns the commands for a shell. program is how the user calls the worker. They have the variables that the worker was given
// about what both commands read.
func exchangeCommands(cfg *config.Config, program string) (send, results string) {
	assigned := func(names ...string) (text string) {
		for _, name := range names {
			if cfg.IsSet(name) {
				text += name + "=" + quoted(os.Getenv(name)) + " "
			}
		}
		return text + quoted(program)
	}
	send = "echo 'some text' | " + assigned("MILLRACE_STREAM", "MILLRACE_SUBJECTS") + " send"
	results = assigned("MILLRACE_SUBJECTS", "MILLRACE_RESULT_STREAM", "MILLRACE_RESULT_PREFIX", "MILLRACE_DEADLETTER_PREFIX", "MILLRACE_OPERATOR_PATH") + " results --follow"
	return send, results
}

// quoted returns text as a word of a shell's command.
func quoted(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./,:=+@%", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
