// Package cliclient sends payloads to the input stream, and prints results and dead letters, for people who have no other NATS tool. The
// commands `worker send` and `worker results` use it. Packages audit and resend share its Reader and its explanations of errors. Programs
// use a NATS client and package millrace/client.
//
// Start reading at Sender.Send, which takes payloads from Payloads, and at Printer.Print.
package cliclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/wildcard"
)

// Printer prints results and dead letters, one JSON object per line: see Line.
type Printer struct {
	Conn     *nats.Conn
	Topology topology.Topology // names of the streams, prefixes and subjects of the worker
	Subject  string            // a filter of the inputs' subjects; empty for all of the worker's
	Last     uint64            // begin that many messages before the end of each stream
	All      bool              // begin with the first message, whatever Last is
	Follow   bool              // wait for more until the context ends
	Payload  int               // the most bytes of a dead letter's payload to print; 0: none

	// Parse returns an operator with its parameters. The values of an operator that it doesn't know are printed as the worker computed them.
	Parse func(spec string) (operator.Operator, error)

	Out   io.Writer
	Notes io.Writer // for what isn't a result

	encoder *json.Encoder
	decode  decoder
	parts   client.Collector[*pull.Message]
	letters []string // subjects of dead letters
	dead    string   // the stream of dead letters; empty if there is none
	noted   map[string]bool
	lines   int // that were printed
	wrong   int // messages that could not be read
}

// mostParts bounds the messages of unfinished results that are kept in memory.
const mostParts = 256

// ErrUnreadable is the error of Print if messages were neither results nor dead letters that it could read. Notes has said why.
var ErrUnreadable = errors.New("messages could not be read")

// Print prints everything. If it fails for lack of a permission, the error says which.
func (p *Printer) Print(ctx context.Context) error {
	err := p.run(ctx)
	if missing := Refusal(p.Conn); err != nil && missing != nil {
		return fmt.Errorf("%w: %w", err, missing)
	}
	return err
}

// run prints what is stored, first results and then dead letters. If Follow is set, it goes on with what comes until ctx ends, which is no
// error.
func (p *Printer) run(ctx context.Context) error {
	js, err := p.Topology.API.New(p.Conn)
	if err != nil {
		return err
	}
	p.encoder = json.NewEncoder(p.Out)
	p.encoder.SetEscapeHTML(false)
	p.decode.parse, p.parts.Most, p.noted = p.Parse, mostParts, map[string]bool{}
	feeds, err := p.open(ctx, js)
	if err != nil {
		return p.unless(ctx, err)
	}
	for _, f := range feeds {
		if err := f.Advance(ctx, f.last, p.print); err != nil {
			return p.unless(ctx, err)
		}
		if f.earlier && p.Last > 0 {
			p.note("%s may have more before the last %d: see --last and --all", f.Stream, p.Last)
		}
	}
	if p.lines == 0 && p.wrong == 0 && (p.All || p.Last > 0) {
		of := ""
		if p.Subject != "" {
			of = " of inputs on " + p.Subject
		}
		p.note("no results and no dead letters%s yet", of)
	}
	if p.Follow {
		if err := p.follow(ctx, feeds); err != nil {
			return err
		}
	}
	if p.wrong > 0 {
		return fmt.Errorf("%d %w", p.wrong, ErrUnreadable)
	}
	return nil
}

// unless returns nil if a user who follows has ended the command.
func (p *Printer) unless(ctx context.Context, err error) error {
	if p.Follow && ctx.Err() != nil {
		return nil
	}
	return err
}

// open opens the feeds: one of results, and one of dead letters if another stream has those.
func (p *Printer) open(ctx context.Context, js jetstream.JetStream) (feeds []*feed, err error) {
	t := p.Topology
	if p.Subject != "" {
		t.Subjects = []string{p.Subject}
	}
	results, letters := mapped(t.ResultPrefix, t.Subjects), mapped(t.DeadLetterPrefix, t.Subjects)
	dead, err := topology.DeadLetterStream(ctx, js, t)
	p.letters, p.dead = letters, dead
	switch {
	case err != nil:
		return nil, err
	case dead == "":
		p.note("no stream stores dead letters, on %s", letters)
	case dead == t.ResultStream:
		results = append(results, letters...)
	}
	f, err := p.feed(ctx, js, t.ResultStream, results)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("%w: start a worker with MILLRACE_PROVISION=true, which creates it, or set MILLRACE_RESULT_STREAM", err)
	}
	if err != nil {
		return nil, err
	}
	feeds = append(feeds, f)
	if dead != "" && dead != t.ResultStream {
		if f, err = p.feed(ctx, js, dead, letters); err != nil {
			return feeds, err
		}
		feeds = append(feeds, f)
	}
	return feeds, nil
}

// feed is a stream that the Printer prints.
type feed struct {
	Reader
	last    uint64 // sequence of the stream's last message when it was opened
	earlier bool   // there may be more outcomes before those that are printed
}

// feed returns a feed that begins with the last outcomes of the selected inputs.
func (p *Printer) feed(ctx context.Context, js jetstream.JetStream, stream string, subjects []string) (*feed, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	info := s.CachedInfo()
	if info.Config.Retention == jetstream.WorkQueuePolicy {
		return nil, fmt.Errorf("stream %s is a work queue: reading a message removes it, so this command doesn't", stream)
	}
	subjects = topology.StoredFilters(info.Config.SubjectTransform, subjects)
	f := &feed{Reader: Reader{JS: js, Stream: stream, Subjects: subjects}, last: info.State.LastSeq}
	first := max(info.State.FirstSeq, 1)
	if f.Next, err = p.begin(ctx, f, first); p.All {
		f.Next = first
	}
	f.earlier = f.Next > first
	return f, err
}

// begin returns the sequence of the first of the last messages about the selected inputs, and first if there are fewer than Last. It reads
// headers, because the subject of an outcome doesn't tell the input's first token.
func (p *Printer) begin(ctx context.Context, f *feed, first uint64) (uint64, error) {
	const wider = 16 // how much further back to look if too few messages match
	if p.Last == 0 || p.All {
		return f.last + 1, nil
	}
	for back := p.Last; ; back *= wider {
		headers := f.Reader
		headers.HeadersOnly, headers.Next = true, max(first, f.last+1-min(back, f.last))
		begin := headers.Next
		var found []uint64
		err := headers.Advance(ctx, f.last, func(sequence uint64, m *pull.Message) error {
			if p.selects(m.Headers()) {
				found = append(found, sequence)
			}
			return nil
		})
		switch n := uint64(len(found)); {
		case err != nil:
			return 0, err
		case n >= p.Last:
			return found[n-p.Last], nil
		case begin == first || back > math.MaxUint64/wider:
			return first, nil
		}
	}
}

// selects reports whether a message is about an input with the subject that the Printer prints.
func (p *Printer) selects(h nats.Header) bool {
	return p.Subject == "" || wildcard.Covers(p.Subject, h.Get(client.HeaderSubject))
}

// mapped returns filters for what the worker publishes under prefix for its inputs. Filters of one consumer must not overlap.
func mapped(prefix string, inputs []string) []string {
	if len(inputs) == 1 && inputs[0] != ">" {
		return []string{topology.MapSubject(prefix, inputs[0])}
	}
	return []string{prefix, prefix + ".>"}
}

// follow prints what comes on any feed.
func (p *Printer) follow(ctx context.Context, feeds []*feed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	came, failed := make(chan *pull.Message), make(chan error, len(feeds))
	pass := func(_ uint64, m *pull.Message) error {
		select {
		case came <- m:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, f := range feeds {
		go func() { failed <- f.Follow(ctx, pass) }()
	}
	for {
		select {
		case m := <-came:
			if err := p.print(0, m); err != nil {
				return err
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// print prints a message: a dead letter, or a result as soon as all parts of it are there.
func (p *Printer) print(_ uint64, m *pull.Message) error {
	h := m.Headers()
	if jsapi.IsDeleteMarker(h, m.Data()) {
		return nil
	}
	if h.Get(client.HeaderSequence) == "" && p.besideDeadLetter(m) {
		return nil
	}
	if h.Get(client.HeaderSequence) == "" {
		p.unreadable(m, errors.New("it is neither a result nor a dead letter"))
		return nil
	}
	if !p.selects(h) {
		return nil // the stream stores it on the same subject as others
	}
	if h.Get(client.HeaderReason) != "" {
		line := newLine(h)
		if line.DeadLetter = newDeadLetter(m); p.Payload > 0 {
			line.DeadLetter.show(m.Data(), p.Payload)
		}
		return p.write(line)
	}
	messages, err := p.parts.Add(h, m)
	if errors.Is(err, client.ErrIncomplete) && !p.All {
		p.note("%v: it may be before the messages that were read, see --last", err)
		return nil
	}
	if err != nil {
		p.unreadable(m, err)
		return nil
	}
	for _, part := range messages {
		if err := p.printResult(part); err != nil {
			return err
		}
	}
	return nil
}

// printResult prints a line for each record of a result.
func (p *Printer) printResult(m *pull.Message) error {
	h := m.Headers()
	records, unknown, err := p.decode.records(h, m.Data())
	if err != nil {
		p.unreadable(m, err)
		return nil
	}
	for _, spec := range unknown {
		p.note("the operator %s isn't known here, so its values are printed as stored: set MILLRACE_OPERATOR_PATH as for the worker", spec)
	}
	line := newLine(h)
	framed, first := h.Get(client.HeaderRecords) != "", Number(h, client.HeaderFirstRecord)
	if framed && len(records) == 0 {
		line.Records = new(uint64)
		return p.write(line)
	}
	for i, record := range records {
		if framed {
			at := first + uint64(i)
			line.Record = &at
		}
		line.Result = record
		if err := p.write(line); err != nil {
			return err
		}
	}
	return nil
}

// besideDeadLetter reports whether a message without an input is a payload that a dead letter names, because it is too large for it.
func (p *Printer) besideDeadLetter(m *pull.Message) bool {
	meta, err := m.Metadata()
	return err == nil && meta.Stream == p.dead && (p.dead != p.Topology.ResultStream ||
		slices.ContainsFunc(p.letters, func(filter string) bool { return wildcard.Covers(filter, m.Subject()) }))
}

// write prints a line.
func (p *Printer) write(l Line) error {
	p.lines++
	return p.encoder.Encode(l)
}

// unreadable notes a message that can't be printed.
func (p *Printer) unreadable(m *pull.Message, err error) {
	p.wrong++
	sequence := uint64(0)
	if meta, err := m.Metadata(); err == nil {
		sequence = meta.Sequence.Stream
	}
	p.note("message %d on %s: %v", sequence, m.Subject(), err)
}

// note writes a line, once.
func (p *Printer) note(format string, args ...any) {
	const most = 1000 // different notes
	text := fmt.Sprintf(format, args...)
	if p.noted[text] || len(p.noted) >= most {
		return
	}
	p.noted[text] = true
	_, _ = fmt.Fprintln(p.Notes, "note:", text)
}
