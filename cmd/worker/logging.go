package main

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/loglimit"
)

// newLogger returns a logger to standard error. It writes JSON, one object per line, or text, which is coloured on a
// terminal. It truncates long texts.
func newLogger(cfg *config.Config) *slog.Logger {
	if logsJSON(cfg) {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel, ReplaceAttr: loglimit.TruncateAttr}))
	}
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{
		Level: cfg.LogLevel, TimeFormat: time.TimeOnly + ".000", NoColor: !console.UsesColour(os.Stderr), ReplaceAttr: loglimit.TruncateAttr,
	}))
}

func logsJSON(cfg *config.Config) bool {
	return cfg.LogFormat == "json" || cfg.LogFormat == "auto" && !console.IsTerminal(os.Stderr)
}

// failedText is the message of the last record of a worker that fails.
const failedText = "the worker failed"

// logFailure logs the error that ends `worker run` if the log is JSON. It writes one record for each problem of the
// configuration, and a final record with the exit status. The returned error has the same exit code, but main doesn't
// print it again. If the log isn't JSON, main prints the error as text.
func logFailure(cfg *config.Config, err error) error {
	if err == nil || !logsJSON(cfg) {
		return err
	}
	log := newLogger(cfg)
	status := slog.Int("exit_status", exitCode(err))
	var bad *config.Error
	if !errors.As(err, &bad) {
		log.Error(failedText, "error", err, status)
		return errors.Join(errReported, err)
	}
	for _, p := range bad.Problems {
		log.Error("a variable is wrong", "variable", p.Variable, "error", p.String())
	}
	log.Error(failedText, "error", "the configuration is wrong", status)
	return errors.Join(errReported, err)
}
