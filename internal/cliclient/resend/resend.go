// Package resend publishes dead letters again as inputs. The command `worker retry` is its only user. Start reading at Resender.Run.
//
// A durable consumer on the stream of dead letters remembers which of them were sent: a dead letter is acknowledged after the input
// stream has stored its input. All others stay unacknowledged, whatever the reason: a run doesn't select them, refuses them, or fails. At its end a run
// gives them back, so the next run, with any selection, gets them at once. Only the consumer changes; the stream keeps every dead letter,
// because `worker audit` needs them (adr/0050).
//
// A message that the consumer delivers to one run is delivered to no other run until AckWait has passed. So runs may overlap, and each
// dead letter is sent by one of them. A run that is killed between the publish and the acknowledgement leaves its dead letters to a later run, which publishes
// them with the same Nats-Msg-Id. Within the input stream's duplicate window the stream drops the second copy. After that it
// stores the input twice.
package resend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"millrace/client"
	"millrace/internal/cliclient"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/wildcard"
)

// Range is a range of sequences, with both ends.
type Range struct{ First, Last uint64 }

// Selection selects dead letters by what their headers say. The zero value selects all.
type Selection struct {
	Reasons []string // values of client.HeaderReason; empty: all
	Subject string   // a filter of the inputs' subjects; empty: all
	Inputs  []Range  // sequences of the inputs; empty: all
}

// selects reports whether the selection has a dead letter with these headers.
func (s *Selection) selects(h nats.Header) bool {
	sequence := cliclient.Number(h, client.HeaderSequence)
	return (len(s.Reasons) == 0 || slices.Contains(s.Reasons, h.Get(client.HeaderReason))) &&
		(s.Subject == "" || wildcard.Covers(s.Subject, h.Get(client.HeaderSubject))) &&
		(len(s.Inputs) == 0 || slices.ContainsFunc(s.Inputs, func(r Range) bool { return r.First <= sequence && sequence <= r.Last }))
}

// isDeadLetter reports whether a message with these headers is a dead letter. The stream also stores payloads and inputs that dead letters
// name, delete markers, and messages of other publishers.
func isDeadLetter(h nats.Header) bool {
	return h.Get(client.HeaderReason) != "" && h.Get(client.HeaderSubject) != "" && cliclient.Number(h, client.HeaderSequence) > 0
}

// Resender publishes dead letters of one deployment again.
type Resender struct {
	Conn     *nats.Conn
	Topology topology.Topology // names of the streams, prefixes and subjects of the deployment
	Name     string            // of the durable consumer
	Select   Selection
	Reading  Reading
	Rate     float64 // the most messages a second, at least LeastRate; 0: as fast as possible
	DryRun   bool    // publish and acknowledge nothing

	Each func(Entry)       // is called for each selected dead letter
	Note func(text string) // is called with what a user who waits should know
}

// LeastRate is the least rate that a Resender keeps: a dead letter must be sent soon after it was delivered.
const LeastRate = 0.1

// Entry tells what became of a selected dead letter.
type Entry struct {
	Letter   uint64 // sequence of the dead letter
	Stream   string // of the input
	Sequence string // of the input
	Subject  string // of the input
	Record   string // index of the record in its frame; empty: the dead letter is of a whole message
	Reason   string
	Bytes    int   // of the new input's body
	Err      error // why it was not sent, or may be sent again

	duplicate bool // the input stream has the input already
}

// Report tells what a run has done. All counts are of dead letters.
type Report struct {
	Sent    map[string]int // by reason; what a dry run would send
	Bytes   int64          // of the bodies that were sent
	Before  int            // stored by an earlier run, which was killed before it could remember that
	Left    map[string]int // by reason: not selected
	Refused int            // selected, but their input can't be made
	Failed  int            // selected, and not sent, or not remembered as sent
	Others  int            // belong to another run
	Took    time.Duration
}

// run is the state of one Run.
type run struct {
	*Resender
	js     jetstream.JetStream
	queue  *queue
	last   uint64 // sequence of the last dead letter that counts: those that are stored later belong to the next run
	pace   *rate.Limiter
	stop   context.CancelCauseFunc
	report *Report

	reached bool // a message behind last was delivered
	row     int  // failures since the last success
}

// Run sends the selected dead letters that are stored now and were not sent before. The report is valid with an error, too, which is
// cliclient.ErrGivenUp after failures that the next dead letters would have too.
func (r *Resender) Run(ctx context.Context) (*Report, error) {
	began := time.Now()
	u := &run{Resender: r, report: &Report{Sent: map[string]int{}, Left: map[string]int{}}, pace: rate.NewLimiter(rate.Limit(r.Rate), 1)}
	err := u.open(ctx)
	if err == nil {
		ctx, u.stop = context.WithCancelCause(ctx)
		err = errors.Join(u.all(ctx), u.queue.release())
		u.stop(nil)
	}
	u.report.Took = time.Since(began)
	if missing := cliclient.Refusal(r.Conn); err != nil && missing != nil {
		err = fmt.Errorf("%w: %w", err, missing)
	}
	return u.report, err
}

// open opens the consumer of dead letters.
func (r *run) open(ctx context.Context) (err error) {
	if r.js, err = r.Topology.API.New(r.Conn, jetstream.WithDefaultTimeout(requestTimeout)); err != nil {
		return err
	}
	info, err := deadLetters(ctx, r.js, r.Topology)
	if err != nil {
		return err
	}
	r.last = info.State.LastSeq
	subjects := topology.StoredFilters(info.Config.SubjectTransform, []string{r.Topology.DeadLetterPrefix, r.Topology.DeadLetterPrefix + ".>"})
	r.queue, err = openQueue(ctx, r.js, info.Config.Name, r.Name, subjects, r.DryRun)
	return err
}

// all handles all dead letters up to last. It waits for those that belong to another run, because that run may be dead.
func (r *run) all(ctx context.Context) error {
	wait, came := time.Duration(0), time.Now() // came is when the last message came
	var alone time.Time                        // when nothing was left but the dead letters of other runs
	noted := false
	for {
		asked := time.Now()
		messages, err := r.queue.fetch(r.chunk(), wait)
		r.handle(ctx, messages, asked)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, pull.ErrSilent): // a server that is busy, and one whose consumer is full, are silent
			return fmt.Errorf("read the dead letters of stream %s: %w", r.queue.stream, err)
		}
		if wait = 0; len(messages) > 0 {
			came = time.Now()
			if !r.reached && alone.IsZero() {
				continue
			}
		}
		waiting, others, err := r.queue.state(ctx)
		exhausted := waiting == 0 || r.reached
		switch wait = min(time.Second, r.queue.wait/10); {
		case err != nil:
			return err
		case exhausted && others == 0:
			return nil
		case !exhausted && r.queue.isFull(others):
			return fmt.Errorf("%d dead letters that no run has sent fill the consumer %s, so the server delivers no others: send some of them, or raise its limit: "+
				"nats consumer edit %s %s --max-pending NUMBER", len(r.queue.held)+others, r.Name, r.queue.stream, r.Name)
		case !exhausted && time.Since(came) > silence:
			return fmt.Errorf("read the dead letters of stream %s: the server sends nothing for %v, although it has %d more", r.queue.stream, silence, waiting)
		case !exhausted:
		case alone.IsZero():
			alone = time.Now()
		case !noted && time.Since(alone) > min(settling, r.queue.wait/4):
			noted = true
			r.Note(fmt.Sprintf("another run has %d dead letters, or had them when it was killed: waiting up to %v", others, r.queue.wait+grace))
		case time.Since(alone) > r.queue.wait+grace:
			r.report.Others = others
			return nil
		}
	}
}

const (
	// grace is how much longer than AckWait a run waits for dead letters of another one.
	grace = 5 * time.Second

	// settling is how long the server may take to deliver what the last run gave back, before a run says that it waits.
	settling = 2 * time.Second
)

// chunk returns how many dead letters to request. They must be sent well before AckWait has passed.
func (r *run) chunk() int {
	if r.Rate <= 0 {
		return atOnce
	}
	return min(max(int(r.Rate*r.queue.wait.Seconds()/10), 1), atOnce)
}
