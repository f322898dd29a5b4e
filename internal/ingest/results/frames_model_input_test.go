package results

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/corpus"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natstest"
	"millrace/internal/ingest/store"
	"millrace/internal/record"
	"millrace/internal/table"
)

// modelInput is a message of the model of settling, with its expected outcome.
type modelInput struct {
	body       []byte
	header     nats.Header
	framed     bool
	compressed bool
	records    [][]byte
	fails      []bool // whether the operator fails on each record
	broken     Reason // reason why the message can't be read; empty if the message can be read

	deliveries, ends int
	reasons          []Reason // reasons of its dead letters
}

const (
	modelMaxRecords = 200
	modelMaxBytes   = 600 // maximum size of a record; some batches are smaller
)

// newInput returns a random message. It is plain, compressed, a frame of any number of records, or broken.
func (m *model) newInput(sequence uint64) *modelInput {
	in := &modelInput{header: nats.Header{}}
	n := 1
	if in.framed = m.random.IntN(3) > 0; in.framed {
		n = oneOf(m.random, 0, 1, m.random.IntN(10), m.random.IntN(modelMaxRecords+1))
	}
	maximum := 1 + m.random.IntN(modelMaxBytes)
	if n > 50 {
		maximum = min(maximum, 60)
	}
	for i := range n {
		text := corpus.Text(m.random.Uint64(), m.random.IntN(maximum))
		if n <= 10 && m.random.IntN(6) == 0 {
			text = bytes.Repeat([]byte{'x'}, modelMaxBytes) // the record fits into a message only when it is compressed
		}
		r := slices.Concat(fmt.Appendf(nil, "%d/%d/", sequence, i), text)
		in.records = append(in.records, r)
		in.fails = append(in.fails, m.random.IntN(50) == 0)
	}
	m.encode(in)
	switch m.random.IntN(12) {
	case 0:
		in.framed, in.broken = true, InvalidFrame
		in.header.Set("Content-Type", "application/vnd.millrace.length-delimited")
		in.body = []byte("\x00\x00\x00\x01x\x00\x00\x00\x09short")
	case 1, 2, 3:
		e := oneOf(m.random, compression.Zstd, compression.LZ4, compression.Snappy)
		in.body = new(compression.Compressor).Append(nil, e, in.body)
		in.header.Set("Content-Encoding", e.ContentEncoding())
		in.compressed = true
	case 4:
		in.broken, in.body = InvalidEncoding, []byte("not compressed")
		in.header.Set("Content-Encoding", "zstd")
	}
	return in
}

// encode joins the records into a body.
func (m *model) encode(in *modelInput) {
	if !in.framed {
		in.body = in.records[0]
		return
	}
	if m.random.IntN(2) == 0 {
		in.header.Set("Content-Type", "application/vnd.millrace.length-delimited")
		for _, r := range in.records {
			in.body = append(binary.BigEndian.AppendUint32(in.body, uint32(len(r))), r...)
		}
		return
	}
	in.header.Set("Content-Type", "application/x-ndjson")
	for i, r := range in.records {
		in.records[i] = bytes.ReplaceAll(bytes.ReplaceAll(r, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
		in.body = append(append(in.body, in.records[i]...), '\n')
	}
}

// statuses returns the expected status of each record.
func (m *model) statuses(in *modelInput) []record.Status {
	statuses := make([]record.Status, len(in.records))
	for i, r := range in.records {
		switch {
		case in.fails[i]:
			statuses[i] = record.OperatorError
		case len(r) > m.pipe.BatchBytes():
			statuses[i] = record.TooLarge
		}
	}
	return statuses
}

// wantReason returns the reason why the whole message must be a dead letter. It is empty if the message must have a result.
func (m *model) wantReason(in *modelInput) Reason {
	switch {
	case in.broken != "":
		return in.broken
	case in.framed:
		return ""
	case len(in.records[0]) > m.pipe.BatchBytes():
		return TooLarge
	case in.compressed && in.fails[0]: // the model marks no plain message
		return OperatorError
	}
	return ""
}

func (m *model) checkStored(sequence uint64, in *modelInput) {
	m.t.Helper()
	parts, letters, dead := m.collect(sequence)
	if why := m.wantReason(in); why != "" {
		if len(parts)+len(letters) > 0 || !slices.Equal(in.reasons, []Reason{why}) {
			m.errorf("message %d has %d results and the dead letters %q, want 0 and %q", sequence, len(parts), in.reasons, why)
		}
		if len(dead) != 1 || dead[0].Header.Get(HeaderReason) != string(why) || !m.hasPayload(dead[0], in, in.body) {
			m.errorf("message %d is stored with the dead letters %v, want one with the reason %q", sequence, dead, why)
		}
		return
	}
	if len(in.reasons) > 0 || len(dead) > 0 || len(parts) == 0 {
		m.errorf("message %d has %d results and the dead letters %q", sequence, len(parts), in.reasons)
		return
	}
	if in.framed {
		m.checkFrame(sequence, in, parts, letters)
		return
	}
	want := table.Reference(m.o.Operators, in.records, nil).AppendSingle(nil, m.o.Format)
	if len(parts) != 1 || !bytes.Equal(m.decoded(parts[0]), want) {
		m.errorf("message %d of one record has %d results, want one equal to the reference", sequence, len(parts))
	}
}

// collect returns the messages of an input's only result, assembled as a reader does. It also returns the dead letters of the
// records and of the whole message.
func (m *model) collect(sequence uint64) (result, letters, dead []modelStored) {
	m.t.Helper()
	var c client.Collector[modelStored]
	messages, letters, dead := m.stream.of(sequence)
	for _, msg := range messages {
		parts, err := c.Add(msg.Header, msg)
		if err != nil || parts != nil && result != nil {
			m.errorf("message %d has a result of %d parts, and then one of %d: %v", sequence, len(result), len(parts), err)
		}
		if parts != nil {
			result = parts
		}
	}
	if len(messages) > len(result) && len(result) > 0 {
		m.did("part of another cut")
	}
	return result, letters, dead
}

// checkFrame checks the parts of a frame's result. All other messages of the frame must be stored before the last part.
func (m *model) checkFrame(sequence uint64, in *modelInput, parts, letters []modelStored) {
	m.t.Helper()
	statuses := m.statuses(in)
	want, last, from := table.Reference(m.o.Operators, in.records, statuses), parts[len(parts)-1], 0
	for n, p := range parts {
		to := len(in.records)
		if n+1 < len(parts) {
			m.did("part")
			to, _ = strconv.Atoi(parts[n+1].Header.Get(HeaderFirstRecord))
		}
		if err := want.Check(m.decoded(p), m.o.Format, from, to); err != nil {
			m.errorf("part %d of %d of the result of message %d: %v", n+1, len(parts), sequence, err)
		}
		if p.at > last.at {
			m.errorf("part %d of the result of message %d is stored after the last one", n+1, sequence)
		}
		from = to
	}
	for _, l := range letters {
		i, _ := strconv.Atoi(l.Header.Get(HeaderRecord))
		switch {
		case l.at > last.at:
			m.errorf("the dead letter of record %d of message %d is stored after its result", i, sequence)
		case !statuses[i].Failed() || l.Header.Get(HeaderReason) != statuses[i].String() || !m.hasPayload(l, in, in.records[i]):
			m.errorf("record %d of message %d is %v and has the dead letter %v", i, sequence, statuses[i], l.Header)
		}
		if statuses[i] == record.TooLarge {
			m.did("too large")
		} else {
			m.did("record letter")
		}
		statuses[i] = record.OK // makes a second dead letter an error
	}
	for i, s := range statuses {
		if s.Failed() {
			m.errorf("record %d of message %d is %v and has no dead letter", i, sequence, s)
		}
	}
}

// hasPayload reports whether a dead letter contains its payload, or names a message that contains the payload. The payload is a record or
// a whole message. A digest suffices if the payload exceeds the largest message.
func (m *model) hasPayload(l modelStored, in *modelInput, payload []byte) bool {
	at, _ := strconv.Atoi(l.Header.Get(HeaderPayloadSequence))
	switch omitted, _, _ := strings.Cut(l.Header.Get(HeaderOmitted), ","); {
	case omitted == "" || omitted == "headers":
		return bytes.Equal(l.Data, payload)
	case omitted == "record":
		m.did("input apart")
		return bytes.Equal(m.stream.stored[at-1].Data, in.body)
	case at > 0:
		m.did("payload apart")
		return bytes.Equal(m.stream.stored[at-1].Data, payload)
	}
	m.did("payload left out")
	fits := len(payload) <= m.stream.maxLetter || len(in.body) <= m.stream.maxLetter
	return l.Header.Get(HeaderPayloadDigest) == digest(payload) && !fits
}

// decoded returns the decompressed body of a result.
func (m *model) decoded(p modelStored) []byte {
	m.t.Helper()
	e := natstest.Must(compression.FromHeader(p.Header.Get("Content-Encoding")))(m.t)
	if e == compression.None {
		return p.Data
	}
	body, err := new(compression.Decompressor).Append(nil, e, p.Data, 1<<30)
	if err != nil {
		m.errorf("%v", err)
	}
	return body
}

// modelStream is a publisher that stores its messages. It loses some messages and some answers.
type modelStream struct {
	m         *model
	maxLetter int            // size of the largest dead letter in bytes
	stored    []modelStored  // guarded by m.mu
	byID      map[string]int // guarded by m.mu
}

// storeApart stores a message that may have no id, and returns its sequence.
func (s *modelStream) storeApart(ctx context.Context, m *nats.Msg) (uint64, error) {
	if a := s.Publish(ctx, []*nats.Msg{m}, nil)[0]; a.Err != nil {
		return 0, a.Err
	}
	return s.sequence(m), nil
}

// sequence returns the sequence of a stored message.
func (s *modelStream) sequence(msg *nats.Msg) uint64 {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if at, ok := s.byID[msg.Header.Get(jetstream.MsgIDHeader)]; ok && msg.Header != nil {
		return uint64(at + 1)
	}
	for at := len(s.stored); at > 0; at-- {
		if s.stored[at-1].Msg.Header == nil && bytes.Equal(s.stored[at-1].Data, msg.Data) {
			return uint64(at)
		}
	}
	return 0
}

// isLetter reports whether a message belongs to a dead letter.
func isLetter(msg *nats.Msg) bool { return strings.HasPrefix(msg.Subject, "deadletter") }

// modelStored is a message of the stream and its position there.
type modelStored struct {
	*nats.Msg
	at int
}

var errModelPublish = errors.New("no answer")

// Publish implements store.Publisher.
func (s *modelStream) Publish(ctx context.Context, msgs []*nats.Msg, dst []store.Answer) []store.Answer {
	for _, msg := range msgs {
		a := store.Answer{Err: ctx.Err()}
		switch {
		case a.Err != nil:
		case msg.Size()-len(msg.Subject) > modelMaxPayload && !isLetter(msg):
			a.Err = nats.ErrMaxPayload
		case msg.Size()-len(msg.Subject) > s.maxLetter && isLetter(msg):
			a.Err = &jetstream.APIError{ErrorCode: 10054} // exceeds the stream's max_msg_size
		case s.m.chance(25):
			s.m.did("publish lost")
			a.Err = errModelPublish
		default:
			a.Duplicate = s.store(msg)
			if s.m.chance(25) {
				s.m.did("confirmation lost")
				a.Err = errModelPublish
			}
			if msg.Header.Get(HeaderPart) != "" && s.m.chance(4) || s.m.chance(60) {
				s.m.did("died")
				ctx.Value(dying{}).(context.CancelFunc)()
			}
		}
		dst = append(dst, a)
	}
	return dst
}

// store stores a message, unless the stream has one with its id. Both must have equal bytes, unless the message
// completes a result that was compressed or cut in another way.
func (s *modelStream) store(msg *nats.Msg) (known bool) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	id := msg.Header.Get(jetstream.MsgIDHeader)
	if at, ok := s.byID[id]; ok && id != "" {
		s.m.counts["stored again"]++
		before := s.stored[at]
		equal := func(header string) bool { return before.Header.Get(header) == msg.Header.Get(header) }
		compared := strings.ContainsAny(id, "/#") || equal(HeaderCut) && equal(headerContentEncoding)
		if compared && !bytes.Equal(before.Data, msg.Data) {
			s.m.errorf("the message %s is published again with other bytes", id)
		}
		return true
	}
	s.m.counts["stored"]++
	at := len(s.stored)
	s.byID[id] = at
	s.stored = append(s.stored, modelStored{&nats.Msg{Subject: msg.Subject, Header: msg.Header, Data: bytes.Clone(msg.Data)}, at})
	return false
}

// of returns the results of a message, and the dead letters of its records and of the whole message, in stream order.
func (s *modelStream) of(sequence uint64) (parts, letters, dead []modelStored) {
	for _, msg := range s.stored {
		switch {
		case msg.Header.Get(HeaderSequence) != strconv.FormatUint(sequence, 10):
		case msg.Header.Get(HeaderRecord) != "":
			letters = append(letters, msg)
		case isLetter(msg.Msg):
			dead = append(dead, msg)
		default:
			parts = append(parts, msg)
		}
	}
	return parts, letters, dead
}

type modelMessage struct {
	inflight.Message
	body   []byte
	header nats.Header
}

func (m modelMessage) Data() []byte         { return m.body }
func (m modelMessage) Headers() nats.Header { return m.header }
func (m modelMessage) Subject() string      { return "ingest.web" }
func (m modelMessage) Reply() string        { return "" }
