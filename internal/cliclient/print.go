// Package cliclient sends payloads to the input stream and prints results and dead letters, without another NATS tool.
// The commands `worker send` and `worker results` use it. Package audit uses its Reader, and package resend uses its
// error explanations. Programs should use a NATS client and package millrace/client instead.
//
// Start reading at Sender.Send, which sends the payloads of Payloads, and at Printer.Print.
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
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
	"millrace/internal/wildcard"
)

// Printer prints results and dead letters, one JSON object per line (see Line).
type Printer struct {
	Conn     *nats.Conn
	Topology topology.Topology // names of the streams, prefixes and subjects of the worker
	Stream   string            // only the outcomes of this input stream; empty for all that the result stream has
	Subject  string            // filter for the subjects of inputs; empty for all inputs of the worker
	Last     uint64            // number of stored messages to print, counted from the end of each stream
	All      bool              // print all stored messages and ignore Last
	Follow   bool              // print new messages until the context ends
	Payload  int               // maximum bytes of a dead letter's payload, and of an annotated document, to print; 0 prints none

	// Parse returns the operator that spec describes. If Parse fails, the operator's values are printed as stored.
	Parse func(spec string) (operator.Operator, error)

	Out   io.Writer
	Notes io.Writer // destination of notes for the user

	encoder *json.Encoder
	decode  decoder
	parts   client.Collector[*pull.Message]
	letters []string // filters for the subjects of dead letters
	dead    string   // the stream of dead letters; empty if there is none
	noted   map[string]bool
	lines   int // number of printed lines
	wrong   int // number of messages that could not be read
}

// maxParts is the maximum number of parts of incomplete results in memory.
const maxParts = 256

// ErrUnreadable is the error of Print if some messages could not be read. Print has written the reasons to Notes.
var ErrUnreadable = errors.New("messages could not be read")

// Print prints the selected messages. If the user lacks a permission, the error names the permission.
func (p *Printer) Print(ctx context.Context) error {
	return WithRefusal(p.run(ctx), p.Conn)
}

// run prints the stored results and then the stored dead letters. If Follow is set, it then prints new messages until
// ctx ends, which is not an error.
func (p *Printer) run(ctx context.Context) error {
	js, err := p.Topology.API.New(p.Conn, jetstream.WithDefaultTimeout(RequestTimeout))
	if err != nil {
		return err
	}
	p.encoder = json.NewEncoder(p.Out)
	p.encoder.SetEscapeHTML(false)
	p.decode.parse, p.parts.Max, p.noted = p.Parse, maxParts, map[string]bool{}
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

// unless returns nil if Follow is set and ctx has ended. Otherwise it returns err.
func (p *Printer) unless(ctx context.Context, err error) error {
	if p.Follow && ctx.Err() != nil {
		return nil
	}
	return err
}

// open returns a feed of results and, if another stream stores the dead letters, a feed of dead letters.
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
	last    uint64 // sequence of the stream's last message when the feed was opened
	earlier bool   // the stream may have outcomes before the first printed one
}

// feed returns a feed of a stream. The feed begins at the first message to print.
func (p *Printer) feed(ctx context.Context, js jetstream.JetStream, stream string, subjects []string) (*feed, error) {
	info, err := StreamInfo(ctx, js, stream)
	if err != nil {
		return nil, err
	}
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

// begin returns the sequence of the n-th newest message about the selected inputs, where n is Last. It returns first if
// there are fewer. It reads headers, because an outcome's subject lacks the first token of the input's subject.
func (p *Printer) begin(ctx context.Context, f *feed, first uint64) (uint64, error) {
	const wider = 16 // factor by which the search goes further back if too few messages match
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

// selects reports whether the headers of a message name an input of Stream whose subject matches Subject.
func (p *Printer) selects(h nats.Header) bool {
	if p.Stream != "" && h.Get(client.HeaderStream) != p.Stream {
		return false
	}
	return p.Subject == "" || wildcard.Covers(p.Subject, h.Get(client.HeaderSubject))
}

// mapped returns filters for the messages that the worker publishes under prefix for inputs with the given subjects.
// The filters don't overlap, because the server rejects a consumer with overlapping filters.
func mapped(prefix string, inputs []string) []string {
	if len(inputs) == 1 && inputs[0] != ">" {
		return []string{store.MapSubject(prefix, inputs[0])}
	}
	return []string{prefix, prefix + ".>"}
}

// follow prints the new messages of all feeds until ctx ends.
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

// print prints a dead letter, or a result after all its parts have been read.
func (p *Printer) print(_ uint64, m *pull.Message) error {
	h := m.Headers()
	if pull.IsDeleteMarker(h, m.Data()) {
		return nil
	}
	if h.Get(client.HeaderSequence) == "" && p.besideDeadLetter(m) {
		return nil
	}
	if h.Get(client.HeaderSequence) == "" {
		p.printUnreadable(m, errors.New("it is neither a result nor a dead letter"))
		return nil
	}
	if !p.selects(h) {
		return nil // the stored subject doesn't distinguish this input from the selected ones
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
		p.printUnreadable(m, err)
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
		p.printUnreadable(m, err)
		return nil
	}
	for _, spec := range unknown {
		p.note("the operator %s isn't known here, so its values are printed as stored: set MILLRACE_OPERATOR_PATH as for the worker", spec)
	}
	line := newLine(h)
	framed, first := h.Get(client.HeaderRecords) != "", Number(h, client.HeaderFirstRecord)
	if framed && len(records) == 0 {
		line.Records = new(uint64)
		if h.Get(client.HeaderFiltered) != "" {
			filtered := Number(h, client.HeaderFiltered)
			line.Filtered = &filtered
		}
		return p.write(line)
	}
	for i, record := range records {
		if framed {
			at := first + uint64(i)
			if record.number != unnumbered {
				at = uint64(record.number)
			}
			line.Record = &at
		}
		line.Result = record.result
		if record.document != nil && p.Payload > 0 {
			line.show(record.document, p.Payload)
		}
		if err := p.write(line); err != nil {
			return err
		}
	}
	return nil
}

// besideDeadLetter reports whether a message without an input is the separate payload of a dead letter. Such a payload
// is too large for the dead letter itself.
func (p *Printer) besideDeadLetter(m *pull.Message) bool {
	meta, err := m.Metadata()
	return err == nil && meta.Stream == p.dead && (p.dead != p.Topology.ResultStream ||
		slices.ContainsFunc(p.letters, func(filter string) bool { return wildcard.Covers(filter, m.Subject()) }))
}

func (p *Printer) write(l Line) error {
	p.lines++
	return p.encoder.Encode(l)
}

// printUnreadable counts a message that can't be printed and writes a note about it.
func (p *Printer) printUnreadable(m *pull.Message, err error) {
	p.wrong++
	sequence := uint64(0)
	if meta, err := m.Metadata(); err == nil {
		sequence = meta.Sequence.Stream
	}
	p.note("message %d on %s: %v", sequence, m.Subject(), err)
}

// note writes a note unless the same text was written before.
func (p *Printer) note(format string, args ...any) {
	const limit = 1000 // maximum number of different notes
	text := fmt.Sprintf(format, args...)
	if p.noted[text] || len(p.noted) >= limit {
		return
	}
	p.noted[text] = true
	_, _ = fmt.Fprintln(p.Notes, "note:", text)
}
