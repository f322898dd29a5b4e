package telemetry

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"millrace/internal/loglimit"
)

// TestWhatNetHTTPLogsIsBounded: net/http logs a line for each client, for example during a port scan. These lines are limited as
// one message.
func TestWhatNetHTTPLogsIsBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	limit := loglimit.New(slog.NewTextHandler(&out, nil), func(slog.Level) {})
	log := errorLog(slog.New(limit))
	const n = 500
	for i := range n {
		log.Printf("http: Accept error: from 192.0.2.1:%d", i)
	}
	if err := limit.Close(); err != nil {
		t.Error(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || !strings.Contains(lines[0], `msg="HTTP server" error="http: Accept error: from 192.0.2.1:0"`) || !strings.Contains(lines[10], "suppressed=490") {
		t.Errorf("%d lines of %d: %q", len(lines), n, lines)
	}
}
