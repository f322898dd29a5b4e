package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/loglimit"
	"millrace/internal/telemetry"
)

// limitLog bounds what log holds of one message that repeats, and has m count the rest. Dead letters are told apart by why
// there are: a thousand that are too large do not hide one that broke the device.
func limitLog(log *slog.Logger, m *telemetry.Metrics) *loglimit.Handler {
	return loglimit.New(log.Handler(), loglimit.Options{Apart: "reason", Suppressed: m.LogSuppressed})
}

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
