package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"

	"millrace/internal/config"
	"millrace/internal/console"
)

// newLogger logs to standard error: coloured lines for a person, one JSON object a line for a machine.
func newLogger(cfg *config.Config) *slog.Logger {
	terminal := console.IsTerminal(os.Stderr)
	if cfg.LogFormat == "json" || cfg.LogFormat == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.LogLevel}))
	}
	return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{
		Level: cfg.LogLevel, TimeFormat: time.TimeOnly + ".000", NoColor: !terminal,
	}))
}
