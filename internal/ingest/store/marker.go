package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"millrace/client"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/pull"
)

// Position identifies an input by its sequence in the input stream and the time when the stream stored it, in
// nanoseconds since 1970. A stream that was restored from an older copy reuses sequences at other times.
type Position struct {
	Sequence uint64 `json:"sequence"`
	Stored   int64  `json:"stored,omitempty"`
}

// Covers reports whether in is among the inputs up to p.
func (p Position) Covers(in Position) bool { return in.Sequence <= p.Sequence && in.Stored <= p.Stored }

// Marker is the body of a commit marker, as JSON.
type Marker struct {
	Position         // position up to which every input of the partition is settled
	Created  int64   `json:"input_created"`     // time when the input stream was created, in nanoseconds since 1970
	Owner    string  `json:"owner"`             // the lease that stored the marker
	Number   uint64  `json:"number"`            // number of the marker in its lease
	Fast     bool    `json:"fast,omitempty"`    // whether a fast batch may follow; its messages may be stored without their marker
	Since    uint64  `json:"since,omitempty"`   // stream sequence after which messages that no marker covers may be stored; 0 if there are none
	LookUp   uint64  `json:"look_up,omitempty"` // last sequence of the inputs that may have results of workers without markers
	Letters  Letters `json:"letters,omitempty"` // dead letters of inputs above Position
	State    *State  `json:"state,omitempty"`   // the state of a stateful operator at Position; absent without one

	Until uint64 `json:"-"` // last input that may have messages in the fast batch of this marker
}

// State describes the state of a stateful operator after all inputs up to a position. The state itself is in the log, which is in the same
// stream (adr/0056).
type State struct {
	Spec    string `json:"spec"`             // everything that the state depends on, such as the operator and its parameters; or LostSpec
	Begins  uint64 `json:"begins,omitempty"` // stream sequence after which the log begins
	Records uint64 `json:"records"`          // number of records that the state has taken

	// Sequence and Record are the position of the last record.
	Sequence uint64 `json:"sequence,omitempty"`
	Record   uint64 `json:"record,omitempty"`
}

// StoredMarker is a marker in the stream.
type StoredMarker struct {
	Marker
	At uint64 // stream sequence of the marker; 0 if there is no marker
}

// begins returns the stream sequence after which messages that no marker covers may be stored, or 0.
func (s *StoredMarker) begins() uint64 {
	switch {
	case s.Since > 0:
		return s.Since
	case s.Fast:
		return s.At
	}
	return 0
}

// of reports whether the marker's position is in the input stream that was created at the given time.
func (s *StoredMarker) of(created time.Time) bool {
	return s.At > 0 && s.Created == created.UnixNano()
}

func (m *Marker) body() []byte {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // a marker contains only numbers, strings and bytes
	}
	return data
}

// Letters lists the inputs with stored dead letters, in the order of their sequences. A marker lists only inputs above
// its position, because the results of inputs before them might not be stored yet.
type Letters []InputLetters

// InputLetters describes the stored dead letters of one input.
type InputLetters struct {
	Position
	Whole   bool   `json:"whole,omitempty"`   // whether the dead letter of the whole message is stored
	Decided bool   `json:"decided,omitempty"` // whether the state has taken records of the message, although it has a dead letter
	Records []byte `json:"records,omitempty"` // bit set of a frame's records with a stored dead letter, lowest bit first
}

// Letter is one dead letter.
type Letter struct {
	Input  Position
	Record int // index of the record in its frame; WholeMessage for the dead letter of the message
	// Decided, with WholeMessage, reports whether a state took records of the message before the message got its dead letter.
	Decided bool
}

// WholeMessage is the Record of a dead letter that contains the whole message.
const WholeMessage = -1

// find returns the index of an input and true, or the index at which to insert the input and false.
func (l Letters) find(in Position) (int, bool) {
	return slices.BinarySearchFunc(l, in, func(a InputLetters, b Position) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Stored, b.Stored))
	})
}

// Has reports whether a dead letter is stored.
func (l Letters) Has(letter Letter) bool {
	i, found := l.find(letter.Input)
	if !found || letter.Record == WholeMessage {
		return found && l[i].Whole
	}
	at := letter.Record / 8
	return at < len(l[i].Records) && l[i].Records[at]&(1<<(letter.Record%8)) != 0
}

// IsDecided reports whether a state has taken records of a message before the message got a dead letter.
func (l Letters) IsDecided(in Position) bool {
	i, found := l.find(in)
	return found && l[i].Decided
}

// Lists reports whether any dead letter of an input is stored.
func (l Letters) Lists(in Position) bool {
	_, found := l.find(in)
	return found
}

// add returns a copy of l with more letters.
func (l Letters) add(more []Letter) Letters {
	all := slices.Clone(l)
	for i := range all {
		all[i].Records = slices.Clone(all[i].Records)
	}
	for _, letter := range more {
		i, found := all.find(letter.Input)
		if !found {
			all = slices.Insert(all, i, InputLetters{Position: letter.Input})
		}
		if letter.Record == WholeMessage {
			all[i].Whole, all[i].Decided = true, letter.Decided
			continue
		}
		if missing := letter.Record/8 + 1 - len(all[i].Records); missing > 0 {
			all[i].Records = append(all[i].Records, make([]byte, missing)...)
		}
		all[i].Records[letter.Record/8] |= 1 << (letter.Record % 8)
	}
	return all
}

// above returns the entries of l that p doesn't cover.
func (l Letters) above(p Position) Letters {
	return slices.DeleteFunc(slices.Clone(l), func(in InputLetters) bool { return p.Covers(in.Position) })
}

// Headers that identify results; see package client.
const (
	HeaderID   = client.HeaderID
	HeaderPart = client.HeaderPart
)

// IDOf returns the id of a result or a dead letter.
func IDOf(h nats.Header) string {
	if own := h[HeaderID]; len(own) > 0 {
		return own[0]
	}
	if id := h[jetstream.MsgIDHeader]; len(id) > 0 {
		return id[0]
	}
	return ""
}

// Way is a method of storing batches.
type Way uint8

const (
	// Atomic stores a batch and its marker together or not at all.
	Atomic Way = iota

	// Checked is like Atomic, but slower, because the server answers each message. If the server refuses a message, the
	// error contains the reason, and not only that the batch is incomplete.
	Checked

	// Fast stores messages one by one, in order, and then the marker. The stream may therefore contain the first messages
	// of a batch without its marker, and more messages may be in transit. If the stream is full, the server may even
	// refuse a message and store later ones. Fast is faster for small messages. The server refuses it on a stream with
	// replicas.
	Fast
)

// Markers is the stream of a chain on the server.
type Markers interface {
	// Last returns the last marker. Without a marker, it returns the zero StoredMarker.
	Last(ctx context.Context) (StoredMarker, error)

	// Write stores messages in their order and then a marker, and returns the marker's sequence. It succeeds only if
	// the last marker has sequence expected, where 0 means that there is no marker. Without messages, Fast first ends a
	// fast batch that has begun after the expected marker. After an error, the messages and the marker may be stored or
	// not. After an error with Fast, some messages may be stored later unless their batch is ended. If the last marker
	// isn't the expected one, the error may be a *WrongLastError. Write may add headers to the messages.
	Write(ctx context.Context, way Way, expected uint64, msgs []*nats.Msg, m *Marker) (sequence uint64, err error)

	// Begun returns the last input that may have messages in fast batches that begin between the two stream sequences,
	// or 0.
	Begun(ctx context.Context, behind, before uint64) (until uint64, err error)

	// Next returns the first message with the given subject after stream sequence behind. sequence is 0 if there is
	// none.
	Next(ctx context.Context, behind uint64, subject string) (sequence uint64, h nats.Header, err error)
}

// WrongLastError is the error of a write that expected a different last marker.
type WrongLastError struct {
	Last uint64 // sequence of the last marker; 0 if there is none
}

func (e *WrongLastError) Error() string {
	return fmt.Sprintf("the last commit marker is %d", e.Last)
}

// Stream implements Markers with a stream on a server.
type Stream struct {
	Name    string // the stream's name
	Subject string // subject of the partition's markers
	// Rollup makes each marker remove the earlier ones. A work queue needs it, because nothing else removes markers
	// there.
	Rollup    bool
	Publisher *Windowed           // for messages
	JS        jetstream.JetStream // for requests
}

var (
	// ErrFenced means that another worker has taken the partition over. That worker stores the missing results.
	ErrFenced = errors.New("another worker has taken the partition over")

	// ErrLost means that the last marker is gone, and an older marker may be the last one again. The stream was purged,
	// recreated or restored, or its server has lost its last messages.
	ErrLost = errors.New("the last commit marker is gone: the stream was purged, recreated or restored")
)

const (
	headerExpected        = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerRollup          = "Nats-Rollup"

	// headerUntil is a header of the first message of a fast batch. It contains the sequence of the last input that may
	// have messages in the batch.
	headerUntil = "Millrace-Until"

	// begin is the last token of the subject of a fast batch's first message. The subject of the markers precedes it.
	begin = ".begin"

	// codeWrongLast is JetStream's error code for an unexpected last message of a subject.
	codeWrongLast jetstream.ErrorCode = 10071

	// JetStream's error codes for a fast batch if the stream accepts no fast batches, or has too many of them.
	codeNoBatches      jetstream.ErrorCode = 10205
	codeTooManyBatches jetstream.ErrorCode = 10211

	// fenceAttempts is the number of attempts to store a marker. An attempt fails if the server ends another batch
	// instead.
	fenceAttempts = 3
)

// HeaderBytes is the maximum number of bytes that Write adds to the headers of a message. Atomic batches need the most.
const HeaderBytes = len("Nats-Batch-Id: 0123456789012345678901\r\n") + len("Nats-Batch-Sequence: 1000\r\n")

// Write implements Markers.
func (s *Stream) Write(ctx context.Context, way Way, expected uint64, msgs []*nats.Msg, m *Marker) (sequence uint64, err error) {
	marker := s.message(expected, m)
	switch {
	case way == Fast:
		sequence, err = s.writeFast(ctx, batchID(expected), msgs, marker, m.Until)
	case len(msgs) > 0:
		sequence, err = s.Publisher.StoreAtomic(ctx, append(msgs[:len(msgs):len(msgs)], marker), way == Checked)
	default:
		sequence, err = s.Publisher.Store(ctx, marker)
	}
	return sequence, wrongLast(err)
}

// batchID returns the id of the only fast batch that may follow a marker.
func batchID(marker uint64) string { return "millrace-" + strconv.FormatUint(marker, 10) }

// writeFast stores messages as a fast batch, and then the marker. The server may refuse a message and store the next
// one. writeFast therefore waits for all outstanding confirmations after the first message, before the last part of a
// result, and before the marker.
func (s *Stream) writeFast(ctx context.Context, id string, msgs []*nats.Msg, marker *nats.Msg, until uint64) (sequence uint64, err error) {
	if len(msgs) > 0 {
		msgs = append([]*nats.Msg{s.beginning(marker, until)}, msgs...)
		confirm := func(i int) bool { return i == 1 || isLastPart(msgs[i].Header) }
		if _, err := s.Publisher.StoreFast(ctx, FastBatch{ID: id, Messages: msgs, Confirm: confirm}); err != nil {
			return 0, err
		}
	}
	return s.storeAlone(ctx, id, marker)
}

// isLastPart reports whether a message is the last one of several parts.
func isLastPart(h nats.Header) bool {
	part := h[HeaderPart]
	if len(part) == 0 {
		return false
	}
	i, n, _ := strings.Cut(part[0], "/")
	return i == n && n != "1"
}

// beginning returns the first message of a fast batch. It has the marker's condition. If the condition doesn't hold,
// the server refuses all messages of the batch. The message has no id, because the server checks ids before conditions.
// It would skip a message with a known id, and still begin the batch.
func (s *Stream) beginning(marker *nats.Msg, until uint64) *nats.Msg {
	return &nats.Msg{Subject: s.Subject + begin, Header: nats.Header{
		headerExpected: marker.Header[headerExpected], headerExpectedSubject: {s.Subject}, headerUntil: {strconv.FormatUint(until, 10)},
	}}
}

// storeAlone stores a marker as a fast batch. id is the id of the only fast batch that any worker may have begun after
// the last marker. If that batch is open, the server ends it at the first attempt, and it can't begin again after the
// marker.
func (s *Stream) storeAlone(ctx context.Context, id string, marker *nats.Msg) (sequence uint64, err error) {
	alone := FastBatch{ID: id, Messages: []*nats.Msg{marker}}
	for range fenceAttempts {
		if sequence, err = s.Publisher.StoreFast(ctx, alone); !errors.Is(err, ErrBatchEnded) {
			break
		}
	}
	switch {
	case errors.Is(err, ErrBatchStuck):
		return s.Publisher.Store(ctx, marker)
	case !isRefused(err, codeNoBatches, codeTooManyBatches):
		return sequence, err
	}
	// The server has no fast batch with this id. Either it ended all fast batches when the stream was changed, or it has
	// too many others. If the server accepts fast batches again, one may have begun in the meantime.
	if sequence, err = s.Publisher.Store(ctx, marker); err != nil {
		return 0, err
	}
	_, err = s.Publisher.StoreFast(ctx, alone)
	if errors.Is(err, ErrBatchEnded) || isRefused(err, codeNoBatches, codeTooManyBatches, codeWrongLast) {
		err = nil
	}
	return sequence, err
}

// isRefused reports whether an error is the server's refusal with one of these codes.
func isRefused(err error, codes ...jetstream.ErrorCode) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && slices.Contains(codes, refused.ErrorCode)
}

// Begun implements Markers.
func (s *Stream) Begun(ctx context.Context, behind, before uint64) (until uint64, err error) {
	for count := 0; ; count++ {
		sequence, h, err := s.Next(ctx, behind, s.Subject+begin)
		if err != nil || sequence == 0 || sequence > before {
			return until, err
		}
		if count == maxBehind {
			return 0, fmt.Errorf("more than %d batches began after the commit marker %d", maxBehind, behind)
		}
		input, err := strconv.ParseUint(h.Get(headerUntil), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("message %d on %q doesn't begin a batch (somebody else publishes there): %w", sequence, s.Subject+begin, err)
		}
		behind, until = sequence, max(until, input)
	}
}

// message returns the message that stores a marker, on the condition that the last marker has sequence expected.
func (s *Stream) message(expected uint64, m *Marker) *nats.Msg {
	h := nats.Header{headerExpected: {strconv.FormatUint(expected, 10)}}
	if s.Rollup {
		h[headerRollup] = []string{"sub"}
	}
	return &nats.Msg{Subject: s.Subject, Header: h, Data: m.body()}
}

// wrongLast converts the server's error for an unexpected last marker to a *WrongLastError. It returns all other errors
// unchanged.
func wrongLast(err error) error {
	var refused *jetstream.APIError
	if !errors.As(err, &refused) || refused.ErrorCode != codeWrongLast {
		return err
	}
	wrong := &WrongLastError{}
	if _, failed := fmt.Sscanf(refused.Description, "wrong last sequence: %d", &wrong.Last); failed != nil {
		return err
	}
	return wrong
}

const readTimeout = 5 * time.Second

// Last implements Markers.
func (s *Stream) Last(ctx context.Context) (StoredMarker, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := jsapi.Last(ctx, s.JS, s.Name, s.Subject)
	if err != nil || m == nil {
		return StoredMarker{}, err
	}
	last := StoredMarker{At: m.Sequence}
	if pull.IsDeleteMarker(m.Header, m.Data) {
		return last, nil // the stream removed the commit marker because of its age
	}
	if err := json.Unmarshal(m.Data, &last.Marker); err != nil {
		return StoredMarker{}, fmt.Errorf("the last message on %q is not a commit marker (somebody else publishes there): %w", s.Subject, err)
	}
	return last, nil
}

// Next implements Markers.
func (s *Stream) Next(ctx context.Context, behind uint64, subject string) (sequence uint64, h nats.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	m, err := jsapi.Next(ctx, s.JS, s.Name, behind+1, subject)
	if err != nil || m == nil {
		return 0, nil, err
	}
	return m.Sequence, m.Header, nil
}

// codeIncomplete is JetStream's error code for an atomic batch with missing messages.
const codeIncomplete jetstream.ErrorCode = 10176

// IncompleteBatch reports whether err means that the server did not accept all messages of an atomic batch.
func IncompleteBatch(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeIncomplete
}

// StoreAtomic publishes two or more messages as one atomic batch, and returns the stream sequence of the last message. The server
// stores all messages or none. StoreAtomic adds headers to the messages. After an error, the messages may or may not be stored. If
// checked is set, StoreAtomic waits for the server's answer to each message. Otherwise, a refused message may cause an error that
// only IncompleteBatch recognizes, without the server's reason.
func (w *Windowed) StoreAtomic(ctx context.Context, msgs []*nats.Msg, checked bool) (sequence uint64, err error) {
	c, err := w.ready(ctx, msgs...)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	flow := jetstreamext.BatchFlowControl{AckTimeout: w.timeout}
	if checked {
		flow.AckFirst, flow.AckEvery = true, 1
	}
	ack, err := jetstreamext.PublishMsgBatch(ctx, c.js, msgs, flow)
	if err != nil {
		return 0, fmt.Errorf("an atomic batch of %d: %w", len(msgs), err)
	}
	return ack.Sequence, nil
}

// maxBehind is the maximum number of messages with one subject that are read back. A batch has fewer messages, and
// only a few batches can follow a marker.
const maxBehind = 1 << 16
