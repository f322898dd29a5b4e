package loglimit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// rig is a log that receives its records from a Handler.
type rig struct {
	*Handler
	log        *slog.Logger
	out        bytes.Buffer
	suppressed map[slog.Level]int
}

func newRig() *rig {
	r := &rig{suppressed: map[slog.Level]int{}}
	r.Handler = New(slog.NewTextHandler(&r.out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}), func(l slog.Level) { r.suppressed[l]++ })
	r.log = slog.New(r.Handler)
	return r
}

// flood logs a message until its next record would be dropped, and discards the lines.
func (r *rig) flood(log *slog.Logger, level slog.Level, msg string, args ...any) {
	for range burst {
		log.Log(context.Background(), level, msg, args...)
	}
	r.take()
}

// take returns the lines written since the last call.
func (r *rig) take() (lines []string) {
	r.mu.Lock() // timers hold the mutex when they write
	defer r.mu.Unlock()
	if text := strings.TrimSpace(r.out.String()); text != "" {
		lines = strings.Split(text, "\n")
	}
	r.out.Reset()
	return lines
}

func (r *rig) want(t *testing.T, want ...string) {
	t.Helper()
	if got := r.take(); !slices.Equal(got, want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// pass waits for d, and then for everything that started during that time.
func pass(d time.Duration) {
	<-time.After(d) // waits on the virtual clock
	synctest.Wait()
}

func TestAFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		defer func() { _ = r.Close() }() // another test checks Close
		for i := range 20000 {
			r.log.Warn("given up", "sequence", i)
		}
		if lines := r.take(); len(lines) != burst || lines[burst-1] != `level=WARN msg="given up" sequence=9` {
			t.Errorf("logged %q, want the first %d", lines, burst)
		}
		pass(interval - 1)
		r.want(t)
		pass(1)
		r.want(t, `level=WARN msg="given up" sequence=19999 suppressed=19990`)
		if r.suppressed[slog.LevelWarn] != 19990 {
			t.Errorf("counted %v, want 19990 warnings", r.suppressed)
		}

		// The next interval begins with the next record, and the same number of records is logged again.
		pass(interval)
		r.flood(r.log, slog.LevelWarn, "given up")
		r.log.Warn("given up", "sequence", 20000)
		pass(interval)
		r.want(t, `level=WARN msg="given up" sequence=20000 suppressed=1`)
		pass(interval)
		r.want(t)
	})
}

// TestASteadyFloodIsBounded logs a flood for six intervals. Each interval adds its burst and one more line.
func TestASteadyFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		defer func() { _ = r.Close() }()
		for range 6000 {
			r.log.Error("failed")
			pass(10 * time.Millisecond)
		}
		lines, dropped := r.take(), 0
		for _, line := range lines {
			var n int
			if _, rest, ok := strings.Cut(line, SuppressedKey+"="); ok {
				if _, err := fmt.Sscan(rest, &n); err != nil {
					t.Fatal(err)
				}
				dropped += n
			}
		}
		if len(lines) != 6*11 || dropped != 6000-60 || r.suppressed[slog.LevelError] != dropped {
			t.Errorf("%d lines that report %d more, and Suppressed counted %v; want 66 lines and 5940", len(lines), dropped, r.suppressed)
		}
	})
}

func TestEachMessageHasItsOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		defer func() { _ = r.Close() }()
		r.flood(r.log, slog.LevelWarn, "given up", "reason", "too_large", "n", 1)
		for range 2 {
			r.log.Warn("given up", "reason", "too_large")
			r.log.Warn("given up", "reason", "device_fault")
			r.log.Error("given up")
			r.log.Debug("given up") // the level is not enabled, so the record isn't counted
		}
		line := []string{`level=WARN msg="given up" reason=device_fault`, `level=ERROR msg="given up"`}
		r.want(t, append(line, line...)...)
		if r.suppressed[slog.LevelWarn] != 2 || len(r.suppressed) != 1 {
			t.Errorf("counted %v", r.suppressed)
		}
	})
}

func TestAttributesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		defer func() { _ = r.Close() }()
		r.flood(r.log.With("partition", 1), slog.LevelInfo, "taken")
		r.log.With("partition", 2).WithGroup("g").Info("taken", "owner", "b")
		pass(interval)
		r.want(t, `level=INFO msg=taken partition=2 g.owner=b g.suppressed=1`)
	})
}

// TestMessagesAreBounded logs many different messages, for example with a number in their text. Neither the memory nor the log may grow.
func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		defer func() { _ = r.Close() }()
		for i := range 1000 {
			r.log.Warn(fmt.Sprintf("message %d", i))
		}
		if got := r.take(); len(got) != maxMessages+burst {
			t.Errorf("%d lines, want one for each of %d messages and %d for all others", len(got), maxMessages, burst)
		}
		r.log.Error("another level")
		r.want(t, `level=ERROR msg="another level"`)
		if n := len(r.counts); n != maxMessages+2 {
			t.Errorf("%d messages have separate limits, want %d and one shared limit for each of two levels", n, maxMessages)
		}
		pass(interval)
		r.want(t, fmt.Sprintf(`level=WARN msg="%s" last="message 999" suppressed=%d`, OthersText, 1000-maxMessages-burst))
		r.log.Warn("message 1000")
		r.want(t, `level=WARN msg="message 1000"`)
	})
}

func TestCloseLogsTheLastCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.flood(r.log, slog.LevelError, "failed")
		r.log.Error("failed", "i", 2)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		r.want(t, `level=ERROR msg=failed i=2 suppressed=1`)
		for range 2 * burst {
			r.log.Error("failed at the end")
		}
		if lines := r.take(); len(lines) != 2*burst {
			t.Errorf("%d lines after Close, want all %d", len(lines), 2*burst)
		}
		pass(time.Minute)
		r.want(t)
	})
}

func TestManyGoroutinesLogAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		counted := 0
		var out bytes.Buffer
		h := New(slog.NewTextHandler(&out, nil), func(slog.Level) { mu.Lock(); counted++; mu.Unlock() })
		log := slog.New(h)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range 1000 {
					log.Warn("same", "i", i)
				}
			})
		}
		wg.Wait()
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(out.String(), "\n"); lines != 11 || counted != 7990 || !strings.Contains(out.String(), "suppressed=7990") {
			t.Errorf("%d lines and %d counted, want 11 and 7990:\n%s", lines, counted, out.String())
		}
	})
}

func TestDroppingARecordAllocatesLittle(t *testing.T) {
	r := newRig()
	defer func() { _ = r.Close() }()
	for range 11 {
		r.log.Warn("same", "sequence", 1)
	}
	if n := testing.AllocsPerRun(1000, func() { r.log.Warn("same", "sequence", 1) }); n > 1 {
		t.Errorf("%v allocations for a dropped record", n)
	}
}
