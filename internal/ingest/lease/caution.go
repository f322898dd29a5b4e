package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/quarantine"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/record"
)

// precaution limits a lease's batches after earlier owners of the partition died. It stores its state in the
// annotations for the next lease.
type precaution struct {
	id    string // this worker's ID
	acks  *upTo
	notes *annotations
	log   *slog.Logger

	// takeOver sets these fields.
	accused   uint64  // stream sequence of the payload that was alone on the device when the last owner died; 0 if there is none
	blamed    string  // operator that caused the loss of the device at that time; empty if unknown
	suspect   suspect // frame in which the lease searches for records that break the device
	comparing bool    // whether an owner died while it compared a payload with others

	mu          sync.Mutex
	due         caution
	quarantined int // number of remaining payloads that may have killed the last owner
}

// takeOver derives the caution from the annotations of the last lease, and annotates that this lease has begun. largest
// is the pipeline's maximum number of payloads per batch. loose reports whether this lease stores no commit markers.
func (c *precaution) takeOver(ctx context.Context, info *jetstream.ConsumerInfo, largest int, loose bool) error {
	left := info.Config.Metadata
	before := parseCaution(left[annotationCaution])
	floor := info.AckFloor.Stream
	caution := before.begin(floor)
	// If this worker itself owned the last lease, that owner didn't die. It only failed to reach the server to end the lease.
	suspected := left[annotationRecords] // from an earlier death; kept if the last death had another reason
	if owner, dead := left[annotationOwner]; dead && owner != c.id {
		sequence, records, _ := strings.Cut(left[annotationAlone], " ")
		if alone, err := strconv.ParseUint(sequence, 10, 64); err == nil {
			c.accused, c.blamed = alone, left[annotationBlamed]
			if records != "" {
				suspected = left[annotationAlone]
			}
		}
		// After a server crash, the consumer's state may lack deliveries.
		caution = before.afterDeath(floor, max(info.Delivered.Stream, delivered(left)), c.accused != 0)
		c.log.Warn("the last owner of the partition did not end of itself", "owner", owner, "floor", floor,
			"deaths", caution.Deaths, "batch_payloads", caution.batchPayloads(largest))
	}
	c.mu.Lock()
	c.due, c.quarantined = caution, caution.quarantined(largest)
	c.mu.Unlock()
	c.acks.begin(info.AckFloor)
	c.comparing = left[annotationBeside] != ""
	if c.suspect = parseSuspect(suspected); c.suspect.sequence <= floor {
		suspected = ""
	}
	return c.notes.annotateOn(ctx, info, map[string]string{
		annotationOwner: c.id, annotationCaution: caution.String(), annotationAlone: "", annotationRecords: suspected, annotationBlamed: "",
		annotationLoose: map[bool]string{true: "yes"}[loose],
	})
}

// assess implements blame. With a state, a condemned input with a stored result is computed without its records.
func (c *precaution) assess(d *inflight.Delivery) (why results.Reason, cause error) {
	condemned := d.Sequence == c.accused && c.condemns(d.Sequence, c.acks.lastBehind())
	if f := d.Frame; f != nil && c.suspects(d) {
		if f.Open(); f.Framed() && f.Records() > 0 {
			condemned = !c.cut(f)
		}
	}
	switch {
	case !condemned:
		return "", nil
	case d.Done:
		excludeRecords(d.Frame)
		return "", nil
	}
	return results.DeviceFault, c.cause()
}

// excludeRecords keeps all records of a frame from the device. For the state, package results computes them otherwise.
func excludeRecords(f *inflight.Frame) {
	f.Open()
	for i := range f.Records() {
		if f.Table.Status(i) == record.OK {
			f.Exclude(i, record.DeviceFault)
		}
	}
}

// suspects reports whether d is the frame whose records ran alone on the device when an owner died.
func (c *precaution) suspects(d *inflight.Delivery) bool {
	return c.suspect.sequence == d.Sequence && c.suspect.stored == d.Stored.UnixNano()
}

// cut divides a suspected frame into runs, to find the records that break the device. It returns false if too many
// records are condemned.
func (c *precaution) cut(f *inflight.Frame) bool {
	runs, ok := c.suspect.Next(f.Records())
	for _, i := range c.suspect.Condemned {
		f.Exclude(i, record.DeviceFault)
	}
	var at []int
	for _, r := range runs[1:] {
		at = append(at, r.First)
	}
	f.Cut(at)
	return ok
}

// trial returns the value of annotationAlone for a batch.
func (c *precaution) trial(g *inflight.Batch) string {
	d := g.Source(0)
	f, first := g.Row(0)
	if f == nil || !f.Framed() || f.Records() == 0 {
		return fmt.Sprint(d.Sequence)
	}
	s := suspect{sequence: d.Sequence, stored: d.Stored.UnixNano()}
	if c.suspects(d) {
		s = c.suspect
	}
	s.Narrowing = s.Begin(quarantine.Run{First: first, Records: g.Rows()})
	return s.String()
}

// cause returns the error for the dead letter of a condemned payload.
func (c *precaution) cause() error {
	return results.Blame(c.blamed, "it was alone on a device that had just computed right, and the device or the worker was lost each time")
}

// condemns reports whether a payload becomes a dead letter because enough owners died while the payload ran alone.
// behind is the highest stream sequence before the payload. Only the reader may call condemns.
func (c *precaution) condemns(sequence, behind uint64) bool {
	if c.accused == 0 || c.accused != sequence {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return behind == c.due.Floor && c.due.giveUp()
}

// bound returns the maximum number of payloads in the next batch. due reports whether the batch is limited because
// owners died. Otherwise, the maximum is limit.
func (c *precaution) bound(limit int) (due bool, bound int) {
	floor := c.acks.acknowledged()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.due.isDue(floor) {
		return false, limit
	}
	return true, c.due.batchPayloads(limit)
}

// isAlone reports whether batches that bound limits have one payload.
func (c *precaution) isAlone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due.isAlone()
}

// relax records that n quarantined payloads have been acknowledged. After the last one, relax lowers the caution and
// annotates it before the lease computes more payloads.
func (c *precaution) relax(ctx context.Context, n, largest int) error {
	floor := c.acks.acknowledged()
	c.mu.Lock()
	c.quarantined -= n
	if c.due.Deaths == 0 || c.due.isDue(floor) && c.quarantined > 0 {
		c.mu.Unlock()
		return nil
	}
	c.due = c.due.relaxed(floor)
	c.quarantined = c.due.quarantined(largest)
	caution := c.due
	c.mu.Unlock()
	return c.notes.annotate(ctx, map[string]string{annotationCaution: caution.String(), annotationBeside: ""})
}

// suspect identifies a frame, and the run of its records that was alone on the device when an owner died.
type suspect struct {
	sequence uint64
	// stored is the time when the stream stored the frame, in nanoseconds since 1970. A recreated stream reuses
	// sequences.
	stored int64
	quarantine.Narrowing
}

func (s suspect) String() string { return fmt.Sprintf("%d %d %v", s.sequence, s.stored, s.Narrowing) }

// parseSuspect parses the result of String. It returns the zero suspect for any other text.
func parseSuspect(text string) suspect {
	var s suspect
	if n, err := fmt.Sscanf(text, "%d %d", &s.sequence, &s.stored); err != nil || n != 2 {
		return suspect{}
	}
	_, rest, _ := strings.Cut(text, " ")
	_, rest, _ = strings.Cut(rest, " ")
	s.Narrowing = quarantine.ParseNarrowing(rest)
	return s
}

// Keys of a lease's annotations in the consumer's metadata. They tell the next lease how this lease ended, even if its
// worker died.
const (
	annotationOwner   = "millrace-owner"   // ID of the worker that owns the partition; removed when its lease ends properly
	annotationCaution = "millrace-caution" // text of a caution
	annotationAlone   = "millrace-alone"   // stream sequence of the payload that runs alone on the device; for a frame, the text of a suspect
	annotationRecords = "millrace-records" // text of the suspect whose records ran alone on the device when an owner died
	annotationBeside  = "millrace-beside"  // stream sequence of a payload that is being compared with others; see storer.compare
	annotationBlamed  = "millrace-blamed"  // operator that caused the loss of the device in the last lease; absent if unknown
	annotationLoose   = "millrace-loose"   // present if the last lease stored no commit markers
)

const annotateTimeout = 5 * time.Second

// errPinLost ends a lease after the server has pinned another worker.
var errPinLost = errors.New("the server gave the partition to another worker meanwhile")

// annotations updates a lease's annotations in the consumer's metadata. Methods are safe for concurrent use.
type annotations struct {
	id     string // this worker's ID
	server leaseServer
	acks   *upTo
	token  chan struct{} // semaphore for reading and updating the metadata
}

func newAnnotations(id string, server leaseServer, acks *upTo) *annotations {
	return &annotations{id: id, server: server, acks: acks, token: make(chan struct{}, 1)}
}

// annotate updates the consumer's annotations. An empty value removes a key. If this worker isn't the annotated owner,
// annotate changes nothing and returns errPinLost.
func (n *annotations) annotate(ctx context.Context, changes map[string]string) error {
	return n.update(ctx, func(map[string]string) map[string]string { return changes })
}

// noteFault annotates the operator that caused the loss of the device, and the time of the loss, for the next lease.
func (n *annotations) noteFault(ctx context.Context, f inflight.OperatorFault) error {
	return n.update(ctx, func(left map[string]string) map[string]string {
		return map[string]string{annotationBlamed: f.Operator, inflight.FaultNote: inflight.AddFault(left[inflight.FaultNote], f)}
	})
}

// update is like annotate, but change returns the changes for the current metadata.
func (n *annotations) update(ctx context.Context, change func(left map[string]string) map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, annotateTimeout)
	defer cancel()
	select {
	case n.token <- struct{}{}:
		defer func() { <-n.token }()
	case <-ctx.Done():
		return ctx.Err()
	}
	// The metadata must be current, because other workers may have changed other keys and the update replaces all keys.
	info, err := n.server.Info(ctx)
	if err != nil {
		return fmt.Errorf("look at the consumer before marking it: %w", err)
	}
	if info.Config.Metadata[annotationOwner] != n.id {
		return errPinLost
	}
	return n.annotateOn(ctx, info, change(info.Config.Metadata))
}

// annotateOn is like annotate, but updates the metadata in info and doesn't check the owner. It also updates the
// annotated last delivery.
func (n *annotations) annotateOn(ctx context.Context, info *jetstream.ConsumerInfo, changes map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, annotateTimeout)
	defer cancel()
	metadata := maps.Clone(info.Config.Metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	for key, value := range changes {
		if value == "" {
			delete(metadata, key)
		} else {
			metadata[key] = value
		}
	}
	taken, _ := n.acks.reached()
	metadata[topology.MarkDelivered] = strconv.FormatUint(max(info.Delivered.Stream, delivered(metadata), taken), 10)
	if err := n.server.Annotate(ctx, info.Config, metadata); err != nil {
		return fmt.Errorf("mark the consumer: %w", err)
	}
	return nil
}

// delivered returns the annotated last delivery as a stream sequence, or 0 if the annotation is absent or invalid.
func delivered(metadata map[string]string) uint64 {
	n, err := strconv.ParseUint(metadata[topology.MarkDelivered], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// caution counts the deaths of a partition's owners, and limits the batches of the next owner. A payload soon after the
// floor may have killed the last owner, and must not kill one worker after another. Batches get smaller with each
// death, until each payload runs alone. Delivery counts aren't sufficient, because a lease reads most unfinished inputs
// from the stream, and the server doesn't count such reads.
//
// A lease keeps its caution in the consumer's metadata, so the caution outlives the worker.
type caution struct {
	Floor  uint64 // acknowledgement floor when the lease began, a stream sequence
	Until  uint64 // stream sequence of the last delivery before a death; later payloads aren't limited
	Deaths int    // number of leases that died before they reached Until; at most the constant alone
	Trials int    // number of deaths while the same first payload ran alone
}

const (
	// alone is the number of deaths after which payloads run one by one. With 8192 payloads, the batch sizes are 512,
	// 32, 2 and 1.
	alone = 4

	// trials is the number of workers that the first payload may kill while it runs alone. After that, the payload
	// becomes a dead letter.
	trials = quarantine.LoneRuns
)

// afterDeath returns the caution after a lease with caution c died. floor is the consumer's acknowledgement floor and
// delivered is its last delivery, both as stream sequences. onDevice reports whether a payload was alone on the device
// when the worker died.
func (c caution) afterDeath(floor, delivered uint64, onDevice bool) caution {
	next := caution{Floor: floor, Until: max(c.Until, delivered), Deaths: 1}
	if floor < c.Until {
		next.Deaths = min(c.Deaths+1, alone)
	}
	if c.Deaths == alone && c.Floor == floor {
		next.Trials = c.Trials
		if onDevice {
			next.Trials++
		}
	}
	return next
}

// begin returns the caution of a lease that begins at floor, after a lease with caution c that ended properly.
func (c caution) begin(floor uint64) caution {
	if floor >= c.Until {
		return caution{Floor: floor}
	}
	c.Floor, c.Trials = floor, 0
	return c
}

// relaxed returns the caution at floor after all quarantined payloads have been acknowledged. It is the caution after
// one death, or none if floor has reached Until.
func (c caution) relaxed(floor uint64) caution {
	if floor >= c.Until {
		return caution{Floor: floor}
	}
	return caution{Floor: floor, Until: c.Until, Deaths: 1}
}

// quarantined returns the number of payloads above the floor that may have killed the last worker, or math.MaxInt if
// Deaths is at most 1. limit is the batch size when Deaths is 0. A lease with caution runs one batch at a time. The
// payload that killed the worker was therefore in the first batch above the floor.
func (c caution) quarantined(limit int) int {
	if c.Deaths <= 1 {
		return math.MaxInt
	}
	return caution{Deaths: c.Deaths - 1}.batchPayloads(limit)
}

// isDue reports whether the batch after floor must be limited.
func (c caution) isDue(floor uint64) bool { return c.Deaths > 0 && floor < c.Until }

// isAlone reports whether payloads are computed one by one.
func (c caution) isAlone() bool { return c.Deaths >= alone }

// batchPayloads returns the maximum number of payloads per batch. limit is the maximum if Deaths is 0.
func (c caution) batchPayloads(limit int) int {
	return quarantine.Levels{Full: limit, Limit: alone + quarantine.LoneRuns}.Size(c.Deaths)
}

// giveUp reports whether the first payload above the floor must become a dead letter, because enough workers died while
// it ran alone.
func (c caution) giveUp() bool { return c.Trials >= trials }

// String returns the text form of c for the metadata.
func (c caution) String() string {
	return fmt.Sprintf("floor=%d until=%d deaths=%d trials=%d", c.Floor, c.Until, c.Deaths, c.Trials)
}

// parseCaution parses the result of String. It returns the zero caution for any other text.
func parseCaution(text string) caution {
	var c caution
	n, err := fmt.Sscanf(text, "floor=%d until=%d deaths=%d trials=%d", &c.Floor, &c.Until, &c.Deaths, &c.Trials)
	if err != nil || n != 4 || c.Deaths < 0 || c.Trials < 0 {
		return caution{}
	}
	return c
}
