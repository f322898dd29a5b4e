package telemetry

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// logLevels are the values of the label level.
var logLevels = [...]string{"debug", "info", "warn", "error"}

func (m *Metrics) registerLog() {
	lines := m.factory.NewCounterVec(prometheus.CounterOpts{Name: "log_suppressed_total", Help: "Log lines suppressed because their message repeated, by level."}, []string{"level"})
	for i, level := range logLevels {
		m.suppressed[i] = lines.WithLabelValues(level)
	}
}

// LogSuppressed counts a suppressed log line of that level.
func (m *Metrics) LogSuppressed(level slog.Level) {
	switch {
	case level >= slog.LevelError:
		m.suppressed[3].Inc()
	case level >= slog.LevelWarn:
		m.suppressed[2].Inc()
	case level >= slog.LevelInfo:
		m.suppressed[1].Inc()
	default:
		m.suppressed[0].Inc()
	}
}
