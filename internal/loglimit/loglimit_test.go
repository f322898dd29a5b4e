package loglimit

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// rig is a log with a Handler in front of it.
type rig struct {
	*Handler
	log        *slog.Logger
	out        bytes.Buffer
	suppressed map[slog.Level]int
}

// remembered returns the number of messages with a running interval.
func (r *rig) remembered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.windows)
}

func newRig(o Options) *rig {
	r := &rig{suppressed: map[slog.Level]int{}}
	o.Suppressed = func(l slog.Level) { r.suppressed[l]++ }
	r.Handler = New(slog.NewTextHandler(&r.out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}), o)
	r.log = slog.New(r.Handler)
	return r
}

// take returns the lines written since the last call.
func (r *rig) take() (lines []string) {
	r.mu.Lock() // timers hold it when they write
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

// pass waits for d and for everything that happens during that time.
func pass(d time.Duration) {
	<-time.After(d) // on the virtual clock
	synctest.Wait()
}

func TestAFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{Burst: 2, Interval: 10 * time.Second})
		defer func() { _ = r.Close() }() // another test checks Close
		for i := range 20000 {
			r.log.Warn("given up", "sequence", i)
		}
		r.want(t, `level=WARN msg="given up" sequence=0`, `level=WARN msg="given up" sequence=1`)
		pass(10*time.Second - 1)
		r.want(t)
		pass(1)
		r.want(t, `level=WARN msg="given up" sequence=19999 suppressed=19998`)
		if r.suppressed[slog.LevelWarn] != 19998 {
			t.Errorf("Suppressed counted %v, want 19998 warnings", r.suppressed)
		}

		// The next interval has begun, and the same number of records passes again.
		for i := range 3 {
			r.log.Warn("given up", "sequence", 20000+i)
		}
		r.want(t, `level=WARN msg="given up" sequence=20000`, `level=WARN msg="given up" sequence=20001`)
		pass(10 * time.Second)
		r.want(t, `level=WARN msg="given up" sequence=20002 suppressed=1`)
		pass(10 * time.Second)
		r.want(t)
		if n := r.remembered(); n != 0 {
			t.Errorf("%d messages are remembered after a silent interval", n)
		}
	})
}

// TestASteadyFloodIsBounded logs a flood for six intervals. Each adds its burst and one more line.
func TestASteadyFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{})
		defer func() { _ = r.Close() }() // another test checks Close
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
		r := newRig(Options{Burst: 1, SplitBy: "reason"})
		defer func() { _ = r.Close() }() // another test checks Close
		for range 5 {
			r.log.Warn("given up", "reason", "too_large", "n", 1)
			r.log.Warn("given up", "reason", "device_fault")
			r.log.Error("given up")
			r.log.Warn("other")
			r.log.Debug("given up") // not enabled, and not counted
		}
		r.want(t, `level=WARN msg="given up" reason=too_large n=1`, `level=WARN msg="given up" reason=device_fault`,
			`level=ERROR msg="given up"`, `level=WARN msg=other`)
		if r.suppressed[slog.LevelWarn] != 12 || r.suppressed[slog.LevelError] != 4 || r.suppressed[slog.LevelDebug] != 0 {
			t.Errorf("Suppressed counted %v", r.suppressed)
		}
	})
}

func TestAttributesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{Burst: 1})
		defer func() { _ = r.Close() }() // another test checks Close
		r.log.With("partition", 1).Info("taken", "owner", "a")
		r.log.With("partition", 2).WithGroup("g").Info("taken", "owner", "b")
		pass(10 * time.Second)
		r.want(t, `level=INFO msg=taken partition=1 owner=a`, `level=INFO msg=taken partition=2 g.owner=b g.suppressed=1`)
	})
}

// TestMessagesAreBounded logs messages that are all different, such as those with a number in their text. Neither the
// memory nor the log grows.
func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{Burst: 2, Messages: 10})
		defer func() { _ = r.Close() }() // another test checks Close
		for i := range 1000 {
			r.log.Warn(fmt.Sprintf("message %d", i))
		}
		if got := r.take(); len(got) != 12 {
			t.Errorf("%d lines, want one for each of 10 messages and 2 for all others", len(got))
		}
		r.log.Error("another level")
		r.want(t, `level=ERROR msg="another level"`)
		if n := r.remembered(); n != 12 {
			t.Errorf("%d messages are told apart, want 10 and those that share a bound for each of two levels", n)
		}
		pass(10 * time.Second)
		r.want(t, `level=WARN msg="`+OthersText+`" last="message 999" suppressed=988`)
		pass(10 * time.Second)
		r.log.Warn("message 1000")
		r.want(t, `level=WARN msg="message 1000"`)
	})
}

func TestCloseLogsTheLastCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{Burst: 1})
		for i := range 3 {
			r.log.Error("failed", "i", i)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			r.log.Error("failed at the end")
		}
		r.want(t, `level=ERROR msg=failed i=0`, `level=ERROR msg=failed i=2 suppressed=2`,
			`level=ERROR msg="failed at the end"`, `level=ERROR msg="failed at the end"`, `level=ERROR msg="failed at the end"`)
		pass(time.Minute)
		r.want(t)
	})
}

func TestManyGoroutinesLogAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		counted := 0
		var out bytes.Buffer
		h := New(slog.NewTextHandler(&out, nil), Options{Suppressed: func(slog.Level) { mu.Lock(); counted++; mu.Unlock() }})
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
	r := newRig(Options{})
	defer func() { _ = r.Close() }() // another test checks Close
	for range 11 {
		r.log.Warn("same", "sequence", 1)
	}
	if n := testing.AllocsPerRun(1000, func() { r.log.Warn("same", "sequence", 1) }); n > 1 {
		t.Errorf("%v allocations for a dropped record", n)
	}
}
