package telemetry

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/record"
)

// jobBegan is the time at which the job of a test begins.
var jobBegan = time.Unix(1e9, 0)

// runJob works from second from to second to. Each second it settles messages of 10 bytes. Every five seconds the
// server reports the pending count.
func runJob(m *Metrics, from, to, messages int, pending func(second int) uint64) (now time.Time) {
	for second := from + 1; second <= to; second++ {
		now = jobBegan.Add(time.Duration(second) * time.Second)
		for range messages {
			m.Settled(inflight.Published, 10, 1, time.Millisecond, time.Second)
		}
		if second%5 == 0 {
			m.Pending(pending(second))
			m.job.unacknowledged(100, now)
			m.job.sample(now)
		}
	}
	return now
}

func TestJobSaysHowFastItIsDone(t *testing.T) {
	m := NewMetrics(Build{})
	m.job = newJobCounter(jobBegan)
	m.job.round = jobRound
	if j := m.job.job(jobBegan.Add(time.Second)); j.Waiting != nil || j.Drain != nil || j.Span != 0 || j.Started != jobBegan.UnixMilli() {
		t.Errorf("before the first report, the job is %+v", j)
	}
	falling := func(second int) uint64 { return uint64(100_000 - 20*second) }
	j := m.job.job(runJob(m, 0, 15, 7, falling))
	if j.Drain != nil || *j.Waiting != 99_800 || j.FinishedRate != 7 || j.Span != 15_000 {
		t.Errorf("while partitions may be unknown the job is %+v", j)
	}
	if j = m.job.job(runJob(m, 15, 25, 7, falling)); j.Drain == nil || *j.Drain != 20 {
		t.Errorf("once all partitions are known the job is %+v", j)
	}
	j = m.job.job(runJob(m, 25, 600, 7, falling))
	if j.Finished != 4200 || j.Records != 4200 || j.Bytes != 42000 || *j.Waiting != 88_100 || *j.Drain != 20 || j.Span != 30_000 ||
		j.FinishedRate != 7 || j.RecordRate != 7 || j.ByteRate != 70 {
		t.Errorf("the job is %+v, drain %v, waiting %v", j, *j.Drain, *j.Waiting)
	}
	if n := len(j.Points); n != jobPoints || j.Points[n-1] != (JobPoint{jobBegan.Add(600 * time.Second).UnixMilli(), 7, 70}) || j.Points[0].At != jobBegan.Add(305*time.Second).UnixMilli() {
		t.Errorf("%d points: %v", n, j.Points)
	}
	j = m.job.job(runJob(m, 600, 660, 0, func(second int) uint64 { return uint64(88_000 + 3*(second-600)) }))
	if *j.Drain != -3 || j.FinishedRate != 0 || j.Points[jobPoints-1].Records != 0 {
		t.Errorf("a job without progress, whose backlog grows, is %+v, drain %v", j, *j.Drain)
	}
}

func TestJobCountsRecordsAndOutcomes(t *testing.T) {
	m := NewMetrics(Build{})
	for _, o := range []inflight.Outcome{inflight.Published, inflight.Duplicate, inflight.DeadLettered, inflight.Nacked} {
		m.Settled(o, 100, 1, time.Millisecond, time.Second)
	}
	m.AddFilter([]string{"record.bytes > 5", "crc32c != \"\""})
	m.Frame(inflight.FrameStats{Framed: true, Records: [record.Statuses]int{record.OK: 8, record.TooLarge: 2}, LeftOut: []int{3, 1, 0}})
	m.Frame(inflight.FrameStats{Compressed: 3})
	m.Redelivered()
	if j := m.Job(); j.Finished != 3 || j.Records != 12 || j.Filtered != 4 || j.Bytes != 300 || j.Redelivered != 1 {
		t.Errorf("the job is %+v, want 3 messages, one of them a frame of 10 records of which 4 are left out", j)
	}
}

func TestJobKeepsTheLastDeadLetters(t *testing.T) {
	m := NewMetrics(Build{})
	for n := range 1000 {
		reason := []string{"too_large", "operator_error"}[n%2]
		m.DeadLettered(inflight.DeadLetter{Subject: strings.Repeat("s", 10000), Sequence: uint64(n), Record: -1, Reason: reason, Cause: errors.New(fmt.Sprint(n, strings.Repeat("e", 10000)))})
	}
	j := m.Job()
	if !maps.Equal(j.Letters, map[string]uint64{"too_large": 500, "operator_error": 500}) || len(j.Last) != jobLetters || cap(m.job.last) > 4*jobLetters {
		t.Fatalf("dead letters by reason: %v; %d are kept", j.Letters, len(j.Last))
	}
	for i, l := range j.Last {
		if n := 999 - i; l.Sequence != uint64(n) || !strings.HasPrefix(l.Error, fmt.Sprint(n, "eee")) || len(l.Error) > maxErrorBytes+4 || len(l.Subject) > maxSubject+4 || l.Record != -1 {
			t.Errorf("entry %d is %+v", i, l)
		}
	}
}
