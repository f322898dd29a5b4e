package audit

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/cliclient"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// outcomes collects the outcomes of a span's inputs from the streams of results and dead letters.
type outcomes struct {
	input   string
	created int64 // inputs stored before this time belong to an earlier stream of the same name
	span    *span
	report  *Report

	sources []*source
	table   *table
	frames  *frames
	order   *order
	letters []payloadApart

	kept     int64  // no outcome of an input stored since this time was removed; nanoseconds since 1970
	keptFrom uint64 // lowest known sequence of an input stored since kept; 0 if there is none
	first    uint64 // lowest sequence with an outcome, even outside the span; 0 if there is none
	reused   uint64 // number of outcomes of inputs whose sequence was reused
}

// source is a stream of results or dead letters.
type source struct {
	cliclient.Reader
	prefixes []string // prefixes of the deployment's subjects; nil for any subject
}

// payloadApart is the payload of a dead letter that is stored in a separate message.
type payloadApart struct {
	stream          string
	input, sequence uint64
}

const (
	// skew is the maximum difference between the clocks of a cluster's servers.
	skew = 10 * time.Second

	// removing exceeds the time from the request for a stream's state to the first read. The server may remove messages
	// in that time.
	removing = time.Minute

	// purged is the minimum number of removed messages that the audit treats as a purge.
	purged = 100

	// maxApart is the maximum number of separate payloads that the audit checks.
	maxApart = 100_000
)

func newOutcomes(in *inputs, s *span, r *Report) *outcomes {
	return &outcomes{
		input: in.info.Config.Name, created: in.info.Created.Add(-skew).UnixNano(), span: s, report: r, table: newTable(), frames: newFrames(),
	}
}

// open finds the streams of results and dead letters, and the first commit markers.
func (o *outcomes) open(ctx context.Context, js jetstream.JetStream, t topology.Topology) error {
	dead, err := topology.DeadLetterStream(ctx, js, t)
	if err != nil {
		return err
	}
	names := []string{t.ResultStream}
	switch dead {
	case "":
		o.report.note("no stream stores dead letters")
	case t.ResultStream:
	default:
		names = []string{dead, t.ResultStream}
	}
	for _, name := range names {
		info, err := cliclient.StreamInfo(ctx, js, name)
		if err != nil {
			return err
		}
		if info.Config.Retention != jetstream.LimitsPolicy {
			return fmt.Errorf("stream %s has retention %s: %w", name, strings.ToLower(info.Config.Retention.String()), errRetention)
		}
		o.kept = max(o.kept, keptSince(info))
		s := &source{Reader: cliclient.Reader{JS: js, Stream: name, HeadersOnly: true, AskLeader: true, Next: max(info.State.FirstSeq, 1)}}
		if info.Config.SubjectTransform == nil {
			s.prefixes = []string{t.ResultPrefix, t.DeadLetterPrefix}
		}
		o.sources = append(o.sources, s)
	}
	o.order, err = readOrder(ctx, js, t)
	if err == nil && t.Exclusive && !o.order.promised() {
		o.report.note("the order isn't checked: stream %s has no commit markers of this deployment, so no order is promised", t.ResultStream)
	}
	return err
}

// keptSince returns the time since which the stream has removed no message, in nanoseconds since 1970. The result is 0
// if the stream still has its first message. Without limits on the stream, only a user can remove messages. If a user
// removed fewer messages than purged, the result is also 0, so the audit reports their inputs as missing. The result
// is math.MaxInt64 if the stream replaces older messages of a subject.
func keptSince(info *jetstream.StreamInfo) int64 {
	c, s := info.Config, info.State
	removed := s.FirstSeq - min(max(c.FirstSeq, 1), s.FirstSeq)
	limits := c.Discard == jetstream.DiscardOld && (c.MaxBytes > 0 || c.MaxMsgs > 0) || c.AllowMsgTTL ||
		c.MaxAge > 0 && info.TimeStamp.Sub(info.Created) >= c.MaxAge
	switch {
	case c.MaxMsgsPerSubject > 0 && !c.DiscardNewPerSubject:
		return math.MaxInt64
	case removed == 0, !limits && removed < purged:
		return 0
	case s.Msgs == 0:
		return s.LastTime.Add(removing).UnixNano()
	}
	return s.FirstTime.Add(removing).UnixNano()
}

// advance reads the messages that the streams have stored since the last call.
func (o *outcomes) advance(ctx context.Context) error {
	for _, s := range o.sources {
		info, err := cliclient.StreamInfo(ctx, s.JS, s.Stream)
		if err != nil {
			return err
		}
		err = s.Advance(ctx, info.State.LastSeq, func(at uint64, m *pull.Message) error { return o.enter(s, at, m.Subject(), m.Headers()) })
		if err != nil {
			return err
		}
	}
	return nil
}

// enter records the message with stream sequence at.
func (o *outcomes) enter(s *source, at uint64, subject string, h nats.Header) error {
	m, ok := parse(h, o.input)
	if !ok || !s.stores(subject) || m.stored > 0 && m.stored < o.created {
		return nil
	}
	o.first = firstOf(o.first, m.sequence)
	if m.stored >= o.kept {
		o.keptFrom = firstOf(o.keptFrom, m.sequence)
	}
	if !o.span.has(m.sequence, m.stored) {
		return nil
	}
	if m.payload > 0 && len(o.letters) < maxApart {
		o.letters = append(o.letters, payloadApart{s.Stream, m.sequence, m.payload})
	}
	if !m.isLast() {
		if wrong := o.frames.enter(&m); wrong != "" {
			o.found(Double, m.sequence, fmt.Sprintf("%s, again as message %d of %s", wrong, at, s.Stream))
		}
		return nil
	}
	return o.settle(s, at, &m)
}

// stores reports whether the deployment may store messages on the given subject in stream s.
func (s *source) stores(subject string) bool {
	for _, p := range s.prefixes {
		if rest, ok := strings.CutPrefix(subject, p); ok && (rest == "" || rest[0] == '.') {
			return true
		}
	}
	return s.prefixes == nil
}

// settle handles the message that settles an input. at is the sequence of the message in the stream s.
func (o *outcomes) settle(s *source, at uint64, m *message) error {
	k := result
	if m.letter {
		k = letter
	}
	before, other, err := o.table.enter(m.sequence, k, m.stored)
	switch {
	case err != nil:
		return err
	case other:
		o.reused++
		return nil
	case before != none:
		has := "several outcomes"
		if before != double {
			has = "a " + kindNames[before]
		}
		o.found(Double, m.sequence, fmt.Sprintf("it has %s and another %s, message %d of %s", has, kindNames[k], at, s.Stream))
		return nil
	}
	if lacks := o.frames.finish(m); lacks != "" && m.stored >= o.kept {
		o.found(Incomplete, m.sequence, lacks)
	}
	if m.letter {
		return nil
	}
	o.report.Filtered += m.filtered
	if wrong := o.order.enter(at, m); wrong != "" {
		o.found(Disorder, m.sequence, wrong)
	}
	return nil
}

func (o *outcomes) found(k Kind, sequence uint64, what string) {
	o.report.add(1, Finding{Kind: k, First: sequence, Last: sequence, What: what})
}

// checkPayloads reports dead letters whose separate payload is missing.
func (o *outcomes) checkPayloads(ctx context.Context, js jetstream.JetStream) error {
	for _, l := range o.letters {
		m, err := jsapi.Next(ctx, js, l.stream, l.sequence, ">")
		if err != nil {
			return fmt.Errorf("read message %d of stream %s: %w", l.sequence, l.stream, err)
		}
		if m == nil || m.Sequence != l.sequence {
			o.found(Incomplete, l.input, fmt.Sprintf("the payload of its dead letter is missing: message %d of %s", l.sequence, l.stream))
		}
	}
	o.letters = nil
	return nil
}
