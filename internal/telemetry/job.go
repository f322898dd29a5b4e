package telemetry

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/ingest/inflight"
)

const (
	jobEvery    = 5 * time.Second  // interval of the chart's points, and of the server's backlog reports
	jobRateSpan = 30 * time.Second // period for the averages of the current rates
	jobPoints   = 60               // maximum number of points: 5 minutes
	jobRound    = 3 * jobEvery     // time in which the server reports every partition once
	jobLetters  = 5                // maximum number of dead letters to keep
	maxSubject  = 200              // maximum bytes of a dead letter's subject
	millis      = int64(time.Millisecond)
)

// Job is the progress of a worker in the format of the timeline page: waiting messages, finished messages and dead
// letters. A finished message has a stored result or dead letter. Times are Unix times in milliseconds, and rates are
// per second.
type Job struct {
	Started     int64  `json:"started"`
	Finished    uint64 `json:"finished"` // messages that this worker finished
	Records     uint64 `json:"records"`  // records in those messages; a message that is not a frame counts as one
	Filtered    uint64 `json:"filtered"` // records of those messages that the filter left out of the results
	Bytes       uint64 `json:"bytes"`    // bytes of those messages
	Redelivered uint64 `json:"redelivered"`

	// Waiting is the number of stored messages that no worker has acknowledged. It is nil until the server has reported it.
	Waiting *uint64 `json:"waiting"`
	// Drain is the rate at which Waiting falls, due to all workers and publishers. It is negative if Waiting grows, and
	// nil while unknown.
	Drain *float64 `json:"drain"`

	Span         int64      `json:"span"` // period of the average rates, in milliseconds; 0 while there is no rate
	FinishedRate float64    `json:"finished_rate"`
	RecordRate   float64    `json:"record_rate"`
	ByteRate     float64    `json:"byte_rate"`
	Points       []JobPoint `json:"points"` // the oldest first

	Letters map[string]uint64 `json:"letters"` // number of dead letters by reason
	Last    []JobLetter       `json:"last"`    // the last dead letters, the newest first

	Worker     JobWorker   `json:"worker"`
	Partitions int         `json:"partitions"` // 0 with shared delivery
	Members    []JobMember `json:"members"`    // the workers that share the partitions, this one first

	Streams int        `json:"streams"` // number of input streams
	Shards  []JobShard `json:"shards"`  // with several input streams: those with the most lag
}

// JobPoint has the average rates of this worker between two points in time.
type JobPoint struct {
	At      int64   `json:"at"` // the later point in time
	Records float64 `json:"records"`
	Bytes   float64 `json:"bytes"`
}

// JobLetter is a dead letter. Subject and Error are shortened. A sender or an operator may have chosen their content.
type JobLetter struct {
	At       int64  `json:"at"`
	Subject  string `json:"subject"`
	Sequence uint64 `json:"sequence"`
	Record   int    `json:"record"` // -1 for the dead letter of a whole message
	Reason   string `json:"reason"`
	Error    string `json:"error"`
}

// JobWorker identifies a worker.
type JobWorker struct {
	Host       string `json:"host"`
	Process    int    `json:"process"`
	Connection string `json:"connection"` // name of its connections to NATS
}

// JobMember is a worker that shares partitions. Name has a bounded length. Any client of the server may have chosen it.
type JobMember struct {
	Name       string `json:"name"`
	Self       bool   `json:"self"` // the member is this worker
	Owns       int    `json:"owns"` // number of its partitions
	Partitions string `json:"partitions"`
}

// jobCounter collects the data of Job in bounded memory.
type jobCounter struct {
	started         time.Time
	finished, bytes atomic.Uint64
	framed          atomic.Int64 // records of frames, minus one per frame
	filtered        atomic.Uint64
	redelivered     atomic.Uint64
	pending         atomic.Uint64

	mu      sync.Mutex
	now     jobSample     // last report of the server
	first   time.Time     // time of the server's first report
	round   time.Duration // time from first until the reports include every partition
	samples []jobSample
	letters map[string]uint64
	last    []JobLetter
}

// jobSample holds the counters at one point in time.
type jobSample struct {
	at                       time.Time
	finished, records, bytes uint64
	waiting                  uint64
	reported                 time.Time // time of the server's report of waiting; zero before the first report
}

func newJobCounter(now time.Time) *jobCounter {
	c := &jobCounter{started: now, letters: map[string]uint64{}}
	c.sample(now)
	return c
}

// settled counts a message whose result or dead letter is stored.
func (c *jobCounter) settled(o inflight.Outcome, bytes int) {
	if o != inflight.Nacked {
		c.finished.Add(1)
		c.bytes.Add(uint64(bytes))
	}
}

// unacknowledged records the number of unacknowledged messages that the server reported at the time now. It adds the
// number of pending messages, which the server reports first.
func (c *jobCounter) unacknowledged(messages uint64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.waiting, c.now.reported = c.pending.Load()+messages, now
	if c.first.IsZero() {
		c.first = now
	}
}

// deadLettered counts a dead letter and keeps it until jobLetters newer ones have arrived.
func (c *jobCounter) deadLettered(l inflight.DeadLetter, now time.Time) {
	kept := JobLetter{
		At: now.UnixMilli(), Subject: shortened(l.Subject, maxSubject), Sequence: l.Sequence, Record: l.Record, Reason: l.Reason,
		Error: shortened(l.Cause.Error(), maxErrorBytes),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.letters[l.Reason]++
	if c.last = append(c.last, kept); len(c.last) > jobLetters {
		c.last = slices.Delete(c.last, 0, 1)
	}
}

// sample adds the current counters to the samples.
func (c *jobCounter) sample(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.samples = append(c.samples, c.read(now)); len(c.samples) > jobPoints+1 {
		c.samples = slices.Delete(c.samples, 0, 1)
	}
}

// read returns the current counters. The caller holds c.mu.
func (c *jobCounter) read(now time.Time) jobSample {
	s := c.now
	s.at, s.finished, s.bytes = now, c.finished.Load(), c.bytes.Load()
	s.records = uint64(max(int64(s.finished)+c.framed.Load(), 0))
	return s
}

// job returns the progress at the time now.
func (c *jobCounter) job(now time.Time) Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.read(now)
	j := Job{
		Started: c.started.UnixMilli(), Finished: s.finished, Records: s.records, Filtered: c.filtered.Load(), Bytes: s.bytes, Redelivered: c.redelivered.Load(),
		Letters: maps.Clone(c.letters), Last: slices.Clone(c.last),
	}
	slices.Reverse(j.Last)
	for i := 1; i < len(c.samples); i++ {
		before, at := c.samples[i-1], c.samples[i]
		j.Points = append(j.Points, JobPoint{at.at.UnixMilli(), perSecond(before.records, at.records, at.at.Sub(before.at)), perSecond(before.bytes, at.bytes, at.at.Sub(before.at))})
	}
	from := c.samples[max(slices.IndexFunc(c.samples, func(o jobSample) bool { return now.Sub(o.at) <= jobRateSpan }), 0)]
	if span := now.Sub(from.at); span >= jobEvery {
		j.Span = int64(span) / millis
		j.FinishedRate, j.RecordRate, j.ByteRate = perSecond(from.finished, s.finished, span), perSecond(from.records, s.records, span), perSecond(from.bytes, s.bytes, span)
	}
	if s.reported.IsZero() {
		return j
	}
	j.Waiting = &s.waiting
	all := c.first.Add(c.round)
	known := slices.IndexFunc(c.samples, func(o jobSample) bool { return now.Sub(o.at) <= jobRateSpan && !o.reported.Before(all) })
	if known < 0 {
		return j
	}
	if from = c.samples[known]; s.reported.After(from.reported) {
		drain := perSecond(s.waiting, from.waiting, s.reported.Sub(from.reported))
		j.Drain = &drain
	}
	return j
}

func perSecond(from, to uint64, span time.Duration) float64 {
	return (float64(to) - float64(from)) / span.Seconds()
}

// Job returns the progress of the worker. It doesn't set Worker, Partitions, Members, Streams and Shards.
func (m *Metrics) Job() Job { return m.job.job(time.Now()) }

// RecordJob adds points to the job's chart until ctx is done. With exclusive delivery, the server reports one partition
// after another, so Waiting is incomplete at first.
func (m *Metrics) RecordJob(ctx context.Context, exclusive bool) {
	if exclusive {
		m.job.mu.Lock()
		m.job.round = jobRound
		m.job.mu.Unlock()
	}
	tick := time.NewTicker(jobEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			m.job.sample(now)
		case <-ctx.Done():
			return
		}
	}
}

// DeadLettered implements ingest.Observer.
func (m *Metrics) DeadLettered(l inflight.DeadLetter) {
	m.letters.WithLabelValues(l.Reason).Inc()
	m.job.deadLettered(l, time.Now())
}
