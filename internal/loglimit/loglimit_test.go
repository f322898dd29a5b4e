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

// rig is a log behind a Handler.
type rig struct {
	*Handler
	log        *slog.Logger
	out        bytes.Buffer
	suppressed map[slog.Level]int
}

// remembered is how many messages have an interval that runs.
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

// take is what was written since the last call.
func (r *rig) take() (lines []string) {
	r.mu.Lock() // timers write under it
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

// pass lets time pass, and what happens in it.
func pass(d time.Duration) {
	<-time.After(d) // on the clock of the bubble
	synctest.Wait()
}

func TestAFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{Burst: 2, Interval: 10 * time.Second})
		defer func() { _ = r.Close() }() // what it says at its end is looked at where it matters
		for i := range 20000 {
			r.log.Warn("given up", "sequence", i)
		}
		r.want(t, `level=WARN msg="given up" sequence=0`, `level=WARN msg="given up" sequence=1`)
		pass(10*time.Second - 1)
		r.want(t)
		pass(1)
		r.want(t, `level=WARN msg="given up" sequence=19999 suppressed=19998`)
		if r.suppressed[slog.LevelWarn] != 19998 {
			t.Errorf("%v were counted, want 19998 warnings", r.suppressed)
		}

		// The next interval has begun, and has a burst of its own.
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

// A minute of a steady flood: six intervals, each with its burst and one line more.
func TestASteadyFloodIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{})
		defer func() { _ = r.Close() }() // what it says at its end is looked at where it matters
		for range 6000 {
			r.log.Error("again")
			pass(10 * time.Millisecond)
		}
		lines, told := r.take(), 0
		for _, line := range lines {
			var n int
			if _, rest, ok := strings.Cut(line, SuppressedKey+"="); ok {
				if _, err := fmt.Sscan(rest, &n); err != nil {
					t.Fatal(err)
				}
				told += n
			}
		}
		if len(lines) != 6*11 || told != 6000-60 || r.suppressed[slog.LevelError] != told {
			t.Errorf("%d lines that tell of %d more, and %v were counted; want 66 lines and 5940", len(lines), told, r.suppressed)
		}
	})
}

func TestMessagesAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{Burst: 1, Apart: "reason"})
		defer func() { _ = r.Close() }() // what it says at its end is looked at where it matters
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
			t.Errorf("counted %v", r.suppressed)
		}
	})
}

func TestAttributesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{Burst: 1})
		defer func() { _ = r.Close() }() // what it says at its end is looked at where it matters
		r.log.With("partition", 1).Info("taken", "owner", "a")
		r.log.With("partition", 2).WithGroup("g").Info("taken", "owner", "b")
		pass(10 * time.Second)
		r.want(t, `level=INFO msg=taken partition=1 owner=a`, `level=INFO msg=taken partition=2 g.owner=b g.suppressed=1`)
	})
}

// Messages without end, as those that have a number in their text, neither grow the memory nor the log.
func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Options{Burst: 2, Messages: 10})
		defer func() { _ = r.Close() }() // what it says at its end is looked at where it matters
		for i := range 1000 {
			r.log.Warn(fmt.Sprintf("message %d", i))
		}
		if got := r.take(); len(got) != 12 {
			t.Errorf("%d lines, want those of 10 messages and 2 of all others", len(got))
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

func TestCloseTellsWhatIsLeft(t *testing.T) {
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

func TestManyAtOnce(t *testing.T) {
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

func TestLettingThroughCostsLittle(t *testing.T) {
	r := newRig(Options{})
	defer func() { _ = r.Close() }() // what it says at its end is looked at where it matters
	for range 11 {
		r.log.Warn("same", "sequence", 1)
	}
	if n := testing.AllocsPerRun(1000, func() { r.log.Warn("same", "sequence", 1) }); n > 1 {
		t.Errorf("%v allocations for a record that is left out", n)
	}
}
