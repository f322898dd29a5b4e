package audit

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/topology"
)

// message holds the headers of a result or dead letter that concern its input.
type message struct {
	sequence uint64 // sequence of the input
	stored   int64  // storage time of the input, in nanoseconds since 1970; 0 if the message has no id
	subject  string // subject of the input
	letter   bool   // the message is a dead letter
	record   int    // index of a dead letter's record in its frame, or whole
	part     client.Part
	cut      string
	filtered uint64 // number of records that a filter left out of the whole result
	payload  uint64 // stream sequence of a dead letter's separate payload; otherwise 0
}

// whole is the value of message.record for a dead letter of a whole message.
const whole = -1

// isLast reports whether the message settles its input.
func (m *message) isLast() bool { return m.record == whole && m.part.Index == m.part.Count }

// parse reads the headers of a message. input is the name of the input stream. ok is false for commit markers, for the
// separate payloads of dead letters, and for messages about other input streams.
func parse(h nats.Header, input string) (m message, ok bool) {
	if h.Get(client.HeaderStream) != input {
		return message{}, false
	}
	sequence, err := strconv.ParseUint(h.Get(client.HeaderSequence), 10, 64)
	if err != nil {
		return message{}, false
	}
	m = message{sequence: sequence, stored: storedAt(h, input), subject: h.Get(client.HeaderSubject), record: whole, part: client.Part{Index: 1, Count: 1}}
	if m.letter = h.Get(client.HeaderReason) != ""; m.letter {
		if text := h.Get(client.HeaderRecord); text != "" {
			if m.record, err = strconv.Atoi(text); err != nil || m.record < 0 {
				return message{}, false
			}
		}
		m.payload, _ = strconv.ParseUint(h.Get(client.HeaderPayloadSequence), 10, 64)
		return m, true
	}
	m.filtered, _ = strconv.ParseUint(h.Get(client.HeaderFiltered), 10, 64)
	if text := h.Get(client.HeaderPart); text != "" {
		if m.part, err = client.ParsePart(text); err != nil {
			return message{}, false
		}
		m.cut = h.Get(client.HeaderCut)
	}
	return m, true
}

// storedAt returns the time in the message's id, or 0 if there is none. The id begins with
// <stream>:<sequence>:<nanoseconds>, where the stream is input.
func storedAt(h nats.Header, input string) int64 {
	rest, ok := strings.CutPrefix(cmp.Or(h.Get(client.HeaderID), h.Get(jetstream.MsgIDHeader)), input+":")
	if !ok {
		return 0
	}
	_, rest, _ = strings.Cut(rest, ":")
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		rest = rest[:end]
	}
	stored, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return 0
	}
	return stored
}

// frames tracks results in several parts, and dead letters of single records. A cut is one division of a result into
// parts. The last part of a cut is stored after its other parts. Parts of other cuts may stay in the stream
// (adr/0039).
type frames struct {
	open  map[uint64][]cutParts // parts of results whose last part wasn't read, by sequence of the input
	parts int                   // number of parts in open
	seen  recent
	full  bool // a part was dropped because open was full
}

// maxParts is the maximum number of parts in open.
const maxParts = 1 << 21

// cutParts holds the parts of one cut that were read.
type cutParts struct {
	stored int64 // storage time of the input
	cut    string
	count  int          // number of all parts
	have   map[int]bool // indexes of the parts that were read
}

func newFrames() *frames { return &frames{open: map[uint64][]cutParts{}} }

// enter handles a message that doesn't settle its input: a part before the last, or the dead letter of a record. It
// returns a description if the message is stored twice.
func (f *frames) enter(m *message) (wrong string) {
	key, name := recentKey{m.sequence, m.stored, m.part.Index, m.cut + "/" + m.part.String()}, "part "+m.part.String()
	if m.record != whole {
		key, name = recentKey{m.sequence, m.stored, m.record, ""}, fmt.Sprint("the dead letter of record ", m.record)
	}
	if f.seen.add(key) {
		return name + " is stored twice"
	}
	if m.record == whole {
		f.add(m)
	}
	return ""
}

// add records a part that isn't the last.
func (f *frames) add(m *message) {
	if f.parts >= maxParts {
		f.full = true
		return
	}
	f.parts++
	cuts := f.open[m.sequence]
	i := slices.IndexFunc(cuts, func(c cutParts) bool { return c.is(m) })
	if i < 0 {
		cuts, i = append(cuts, cutParts{m.stored, m.cut, m.part.Count, map[int]bool{}}), len(cuts)
		f.open[m.sequence] = cuts
	}
	cuts[i].have[m.part.Index] = true
}

func (c *cutParts) is(m *message) bool {
	return c.stored == m.stored && c.cut == m.cut && c.count == m.part.Count
}

// finish handles the last part of a result. It returns a description of the missing parts, or an empty string.
func (f *frames) finish(m *message) (lacks string) {
	have := map[int]bool{}
	for _, c := range f.open[m.sequence] {
		f.parts -= len(c.have)
		if c.is(m) {
			have = c.have
		}
	}
	delete(f.open, m.sequence)
	if f.full || len(have) == m.part.Count-1 {
		return ""
	}
	first := 1
	for have[first] {
		first++
	}
	return fmt.Sprintf("%d of %d parts of its result are missing, the first of them part %d", m.part.Count-1-len(have), m.part.Count, first)
}

// unfinished describes the stored parts of an input without an outcome. It returns an empty string if there are none.
func (f *frames) unfinished(sequence uint64) string {
	cuts := f.open[sequence]
	if len(cuts) == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d parts of a result are stored, and the last one isn't", len(cuts[0].have), cuts[0].count)
}

// recent holds the keys of at least the last recentSize messages of frames.
type recent struct{ now, before map[recentKey]struct{} }

// recentKey identifies a message of a frame.
type recentKey struct {
	sequence uint64
	stored   int64
	index    int
	cut      string
}

// recentSize limits the memory of recent to about 100 MB.
const recentSize = 1 << 19

// add adds the key of a message, and reports whether recent already had the key.
func (r *recent) add(k recentKey) bool {
	if _, there := r.now[k]; there {
		return true
	}
	if _, there := r.before[k]; there {
		return true
	}
	if r.now == nil || len(r.now) >= recentSize {
		r.now, r.before = map[recentKey]struct{}{}, r.now
	}
	r.now[k] = struct{}{}
	return false
}

// order checks that the results of each partition are stored in the order of their inputs. Commit markers guarantee
// this order, so the check begins at the partition's first marker.
type order struct {
	partitions []place
}

// place is the position of the last result of a partition.
type place struct {
	begins uint64 // stream sequence of the first marker; 0 if there is none
	last   uint64 // highest sequence of an input with a result
	stored int64  // storage time of that input
}

// readOrder looks up the first commit marker of each partition.
func readOrder(ctx context.Context, js jetstream.JetStream, t topology.Topology) (*order, error) {
	o := &order{}
	if !t.Exclusive || t.ExactlyOnce == topology.Off || t.CommitPrefix == "" {
		return o, nil
	}
	o.partitions = make([]place, t.Partitions)
	for p := range o.partitions {
		m, err := jsapi.Next(ctx, js, t.ResultStream, 1, topology.CommitSubject(t.CommitPrefix, t.ResultStream, t.Stream, t.Consumer, p))
		if err != nil {
			return nil, fmt.Errorf("look up the first commit marker of partition %d: %w", p, err)
		}
		if m != nil {
			o.partitions[p].begins = m.Sequence
		}
	}
	return o, nil
}

// promised reports whether any partition has a commit marker.
func (o *order) promised() bool {
	return slices.ContainsFunc(o.partitions, func(p place) bool { return p.begins > 0 })
}

// enter handles the final message of a result, with stream sequence at. It returns a description if the order is wrong.
func (o *order) enter(at uint64, m *message) (wrong string) {
	if len(o.partitions) == 0 {
		return ""
	}
	number := partitionOf(m.subject, len(o.partitions))
	switch p := &o.partitions[number]; {
	case p.begins == 0 || at < p.begins:
	case m.sequence >= p.last:
		p.last, p.stored = m.sequence, m.stored
	case m.stored <= p.stored: // a later time means that the sequence was reused
		return fmt.Sprintf("its result is stored after that of input %d of the same partition, %d", p.last, number)
	}
	return ""
}

// partitionOf returns the number of the partition to which the server assigns a subject.
func partitionOf(subject string, partitions int) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(subject)) // never fails
	return int(h.Sum32() % uint32(partitions))
}
