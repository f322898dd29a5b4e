package console

import (
	"strings"
	"testing"
	"time"

	"millrace/internal/ingest"
	"millrace/internal/ingest/inflight"
)

func TestFigures(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Bytes(0), "0 B"}, {Bytes(1023), "1023 B"}, {Bytes(1024), "1.0 KiB"}, {Bytes(5 << 30), "5.0 GiB"},
		{Count(0), "0"}, {Count(999), "999"}, {Count(1000), "1,000"}, {Count(200000), "200,000"}, {Count(-1234567), "-1,234,567"},
		{Share(1, 4), "25.0 %"}, {Share(1, 0), "-"},
		{Time(999), "999 ns"}, {Time(1500), "1.5 us"}, {Time(2340 * time.Microsecond), "2.34 ms"}, {Time(12 * time.Second), "12 s"},
		{Bar(0, 10, 4), "░░░░"}, {Bar(5, 10, 4), "██░░"}, {Bar(20, 10, 4), "████"}, {Bar(0, 0, 4), "░░░░"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := Table(&out, [][]string{{"stage", "median"}, {"copy in", "10 us"}, {"x", "1.25 ms"}}); err != nil {
		t.Fatal(err)
	}
	want := "stage     median\n────────────────\ncopy in    10 us\nx        1.25 ms\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// counting is an observer that counts the calls that a Meter forwards.
type counting struct {
	ingest.Observer
	settled, pending, stalled int
}

func (c *counting) Settled(inflight.Outcome, int, int, time.Duration, time.Duration) { c.settled++ }
func (c *counting) Pending(uint64)                                                   { c.pending++ }
func (c *counting) Stalled(int)                                                      { c.stalled++ }

func TestMeterLine(t *testing.T) {
	next := &counting{}
	m := NewMeter(next)
	before := m.Read()
	for range 3000 {
		m.Settled(inflight.Published, 1024, 10, 0, 0)
	}
	m.Settled(inflight.DeadLettered, 1<<20, 0, 0, 0) // a dead letter's bytes don't count as published
	m.Pending(77)
	got := Line(before, m.Read(), 2*time.Second)
	want := "3,000 payloads  1,500/s  1.5 MiB/s  77 waiting  1 dead-lettered  0 given back"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	m.Stalled(1)
	if *next != (counting{settled: 3001, pending: 1, stalled: 1}) {
		t.Errorf("forwarded %+v", *next)
	}
}
