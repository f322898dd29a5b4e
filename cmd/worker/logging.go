package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/loglimit"
)

// newLogger logs to standard error, as coloured lines on a terminal or as one JSON object per line elsewhere. It cuts long texts.
func newLogger(cfg *config.Config) *slog.Logger {
	if logsJSON(cfg) {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel, ReplaceAttr: loglimit.TruncateAttr}))
	}
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{
		Level: cfg.LogLevel, TimeFormat: time.TimeOnly + ".000", NoColor: !console.UsesColour(os.Stderr), ReplaceAttr: loglimit.TruncateAttr,
	}))
}

// logsJSON reports whether the log is JSON.
func logsJSON(cfg *config.Config) bool {
	return cfg.LogFormat == "json" || cfg.LogFormat == "auto" && !console.IsTerminal(os.Stderr)
}
