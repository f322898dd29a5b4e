// Package resend publishes dead letters again as inputs. Only the command `worker retry` uses it. Start reading at
// Resender.Run.
//
// A durable consumer on the stream of dead letters tracks the sent ones. A run acknowledges a dead letter after the
// input stream has stored its input. Other dead letters stay unacknowledged: a run doesn't select them, refuses them,
// or fails to send them. At its end, a run gives them back, so the next run receives them at once. Only the consumer
// changes. The stream keeps every dead letter, because `worker audit` needs them (adr/0050).
//
// Within AckWait, the server delivers each message to only one run, so runs may overlap. If a run is killed between the
// publish and the acknowledgement, a later run publishes the dead letter again with the same Nats-Msg-Id. Within its
// duplicate window, the input stream drops the second copy. After that window, the stream stores the input twice.
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

// Range is a range of sequences that includes First and Last.
type Range struct{ First, Last uint64 }

// Selection selects dead letters by their headers. The zero value selects all.
type Selection struct {
	Reasons []string // values of client.HeaderReason; empty selects all
	Subject string   // filter for the subjects of inputs; empty selects all
	Inputs  []Range  // sequences of the inputs; empty selects all
}

// selects reports whether the selection includes a dead letter with the headers h.
func (s *Selection) selects(h nats.Header) bool {
	sequence := cliclient.Number(h, client.HeaderSequence)
	return (len(s.Reasons) == 0 || slices.Contains(s.Reasons, h.Get(client.HeaderReason))) &&
		(s.Subject == "" || wildcard.Covers(s.Subject, h.Get(client.HeaderSubject))) &&
		(len(s.Inputs) == 0 || slices.ContainsFunc(s.Inputs, func(r Range) bool { return r.First <= sequence && sequence <= r.Last }))
}

// isDeadLetter reports whether a message with the headers h is a dead letter. The stream also stores other messages:
// delete markers, messages of other publishers, and the payloads and inputs that dead letters name.
func isDeadLetter(h nats.Header) bool {
	return h.Get(client.HeaderReason) != "" && h.Get(client.HeaderSubject) != "" && cliclient.Number(h, client.HeaderSequence) > 0
}

// Resender publishes dead letters of one deployment again.
type Resender struct {
	Conn     *nats.Conn
	Topology topology.Topology // names of the streams, prefixes and subjects of the deployment
	Name     string            // name of the durable consumer
	Select   Selection
	Reading  Reading
	Rate     float64 // maximum messages per second, at least MinRate; 0 means no limit
	DryRun   bool    // publish and acknowledge nothing

	Each func(Entry)       // called for each selected dead letter
	Note func(text string) // called with notes about delays, for the user
}

// MinRate is the minimum Rate. At a lower rate, AckWait could pass before a delivered dead letter is published.
const MinRate = 0.1

// Entry is the result for one selected dead letter.
type Entry struct {
	Letter uint64      // sequence of the dead letter
	Header nats.Header // headers of the dead letter
	Bytes  int         // size of the new input's body
	Err    error       // reason why the dead letter was not sent or not marked as sent

	duplicate bool // the input stream already has the input
}

// Report is the result of a run. All counts are numbers of dead letters.
type Report struct {
	Sent    map[string]int // sent, by reason; a dry run counts the dead letters that it would send
	Bytes   int64          // total size of the sent bodies
	Before  int            // already stored by an earlier run that was killed before the acknowledgement
	Left    map[string]int // not selected, by reason
	Refused int            // selected, but their input can't be restored
	Failed  int            // selected, but not sent or not marked as sent
	Others  int            // delivered to another run
	Took    time.Duration
}

// run is the state of one Run.
type run struct {
	*Resender
	js     jetstream.JetStream
	queue  *queue
	last   uint64 // sequence of the last dead letter of this run; the next run handles later ones
	pace   *rate.Limiter
	stop   context.CancelCauseFunc
	report *Report

	reached bool // a message after last was delivered
	row     int  // consecutive failures
}

// Run sends the selected dead letters that are stored now and were not sent before. The report is valid even with an
// error. The error is cliclient.ErrGivenUp if the next dead letters would fail, too.
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
	return u.report, cliclient.WithRefusal(err, r.Conn)
}

// open opens the consumer of dead letters and sets last.
func (r *run) open(ctx context.Context) (err error) {
	if r.js, err = r.Topology.API.New(r.Conn, jetstream.WithDefaultTimeout(cliclient.RequestTimeout)); err != nil {
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

// all handles all dead letters up to last. It waits for dead letters that were delivered to another run, because that
// run may have been killed.
func (r *run) all(ctx context.Context) error {
	wait, came := time.Duration(0), time.Now() // came is the time of the last message
	var alone time.Time                        // time since which only dead letters of other runs are left
	noted, again := false, false
	for {
		asked := time.Now()
		messages, err := r.queue.fetch(ctx, r.chunk(), wait)
		r.handle(ctx, messages, asked)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, pull.ErrSilent): // the server is silent if it is busy or the consumer is full
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
		case exhausted && others == 0 && !r.reached && !again:
			again, wait = true, counting
		case exhausted && others == 0:
			return nil
		case !exhausted && r.queue.isFull(others):
			return fmt.Errorf("%d dead letters that no run has sent fill the consumer %s, so the server delivers no others: send some of them, or raise its limit: "+
				"nats consumer edit %s %s --max-pending NUMBER", len(r.queue.held)+others, r.Name, r.queue.stream, r.Name)
		case !exhausted && time.Since(came) > cliclient.Silence:
			return fmt.Errorf("read the dead letters of stream %s: the server sends nothing for %v, although it has %d more", r.queue.stream, cliclient.Silence, waiting)
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
	// counting is the time for the server to count dead letters that were stored just before the run. The server updates the counts
	// of a consumer only after it has confirmed that messages are stored.
	counting = 250 * time.Millisecond

	// grace is the time beyond AckWait that a run waits for dead letters of another run.
	grace = 5 * time.Second

	// settling is the time for the server to redeliver dead letters that the last run gave back. After that time, a run
	// notes that it waits.
	settling = 2 * time.Second
)

// chunk returns the number of dead letters to request. A run must be able to send them well within AckWait.
func (r *run) chunk() int {
	if r.Rate <= 0 {
		return atOnce
	}
	return min(max(int(r.Rate*r.queue.wait.Seconds()/10), 1), atOnce)
}
