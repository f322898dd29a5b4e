package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/config"
	"millrace/internal/ingest"
	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/inflight"
	"millrace/internal/memory"
	"millrace/internal/record"
)

const (
	// sampledMessages is the number of messages that checkField reads, counted from the end of the stream.
	sampledMessages = 5

	// namedFields is the maximum number of names in a finding.
	namedFields = 20
)

// checkField reads the last messages of the input stream, and warns if their records don't have the configured field. It returns nothing if
// no field is configured or if the stream has no messages.
func checkField(ctx context.Context, cfg *config.Config, nc *nats.Conn, o *ingest.Options) []finding.Finding {
	if cfg.Field == "" {
		return nil
	}
	f := finding.Finding{What: "field " + cfg.Field}
	messages, err := lastMessages(ctx, nc, o)
	if err != nil {
		f.Level, f.Found, f.Advice = finding.Warning, fmt.Sprintf("the last messages of stream %s can't be read: %v", cfg.Stream, err), "check again, or see docs/security.md for the permissions"
		return []finding.Finding{f}
	}
	budget, err := memory.New(memory.Worker{Messages: o.Messages, Slots: 1, BatchBytes: int(cfg.BatchBytes)})
	if err != nil || len(messages) == 0 {
		return nil // without a limit, there is no error
	}
	s := fieldSample{unpacker: inflight.NewUnpacker(budget), names: map[string]bool{}}
	for _, m := range messages {
		s.add(m)
	}
	return []finding.Finding{s.describe(f)}
}

// lastMessages returns up to sampledMessages messages of the input stream.
func lastMessages(ctx context.Context, nc *nats.Conn, o *ingest.Options) (all []*jetstream.RawStreamMsg, err error) {
	js, err := o.API.New(nc)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, o.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil // another finding reports that
	} else if err != nil {
		return nil, err
	}
	state := stream.CachedInfo().State
	for n := uint64(0); n < sampledMessages && n < state.Msgs && state.LastSeq-n >= state.FirstSeq; n++ {
		m, err := stream.GetMsg(ctx, state.LastSeq-n)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return nil, err
		default:
			all = append(all, m)
		}
	}
	return all, nil
}

// stored is a stored message as an input of an unpacker.
type stored struct{ *jetstream.RawStreamMsg }

func (s stored) Data() []byte         { return s.RawStreamMsg.Data }
func (s stored) Headers() nats.Header { return s.Header }

// fieldSample counts the records that have the field, lack it, or aren't valid.
type fieldSample struct {
	unpacker *inflight.Unpacker

	messages, records, without, invalid int

	fault error           // error of a message that can't be unpacked
	names map[string]bool // members of the records without the field
}

// add unpacks a message and counts its records.
func (s *fieldSample) add(m *jetstream.RawStreamMsg) {
	var message inflight.Unpacked
	s.unpacker.Start(&message, stored{m})
	message.Open()
	s.messages++
	if message.Fault() != nil {
		s.fault = message.Fault()
		return
	}
	for i := range message.Records() {
		s.records++
		switch message.Table.Status(i) {
		case record.InvalidJSON:
			s.invalid++
		case record.NoField, record.Null:
			s.without++
			s.addNames(message.Split().Source(i))
		}
	}
}

// addNames adds the names of a record's members, unless there are many already.
func (s *fieldSample) addNames(source []byte) {
	var object map[string]json.RawMessage
	if len(s.names) >= namedFields || json.Unmarshal(source, &object) != nil {
		return // a null of an Arrow column has no members
	}
	for name := range object {
		s.names[name] = true
	}
}

// describe completes a finding. It is a warning if a message can't be read, or if no record has the field.
func (s *fieldSample) describe(f finding.Finding) finding.Finding {
	found := s.records - s.without - s.invalid
	f.Found = fmt.Sprintf("%d of %s in the last %s have it", found, counted(s.records, "record"), counted(s.messages, "message"))
	switch {
	case s.fault != nil:
		f.Level, f.Found, f.Advice = finding.Warning, fmt.Sprintf("one of the last messages becomes a dead letter: %v", s.fault), "set MILLRACE_FRAMING, MILLRACE_DECOMPRESS and MILLRACE_FIELD to match the producer's messages"
	case s.records == 0 || found > 0:
	case len(s.names) == 0:
		f.Level, f.Advice = finding.Warning, "set MILLRACE_FRAMING to the framing that the producer uses, and MILLRACE_FIELD to a field of its objects"
	default:
		names := slices.Sorted(maps.Keys(s.names))
		f.Found += fmt.Sprintf("; they have %s", strings.Join(names[:min(len(names), namedFields)], ", "))
		f.Level, f.Advice = finding.Warning, "set MILLRACE_FIELD to the field with the text, or to a path such as doc.body"
	}
	if f.Level == finding.OK && s.invalid > 0 {
		f.Found += fmt.Sprintf("; %d aren't valid JSON", s.invalid)
	}
	return f
}
