package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Deliveries that a tenure never saw are read from the stream: some got lost on the way, and some the client takes for the
// server's own word (an empty payload with a header Status) and passes to nobody. Without them nothing behind them could
// ever be acknowledged.

// fillMost is how many inputs are read from the stream at once, each a round trip. More are delivered again sooner.
const fillMost = 64

// fill takes what the partition has behind the last input taken, up to before sequence, and hands it on.
func (t *tenure) fill(ctx, hard context.Context, sequence uint64) error {
	t.mu.Lock()
	from, next := t.floor.Highest(), t.taken+1
	t.mu.Unlock()
	missing, err := t.missing(ctx, from, sequence)
	if err != nil {
		return err
	}
	sequences := make([]uint64, len(missing))
	for i := range missing {
		missing[i].number = next + uint64(i)
		missing[i].msg.(*storedMsg).number = missing[i].number
		sequences[i] = missing[i].sequence
	}
	t.mu.Lock()
	t.floor.Fill(sequences, sequence)
	t.mu.Unlock()
	if len(missing) > 0 {
		t.log.Info("read inputs from the stream that were delivered and never came", "inputs", len(missing), "from", sequences[0])
	}
	for _, d := range missing {
		if err := t.hand(ctx, hard, d, false); err != nil {
			return err
		}
	}
	return nil
}

// fillTail takes what was delivered last and never came, by what the consumer says.
func (t *tenure) fillTail(ctx, hard context.Context, info *jetstream.ConsumerInfo) error {
	t.mu.Lock()
	before := t.floor.Highest()
	t.mu.Unlock()
	if err := t.fill(ctx, hard, info.Delivered.Stream+1); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = info.Delivered.Consumer
	if t.floor.Highest() == before {
		return errGap // they were no new ones
	}
	return nil
}

// missing reads the partition's inputs between two sequences of the stream, both not included.
func (t *tenure) missing(ctx context.Context, from, to uint64) (found []delivery, err error) {
	filter := strconv.Itoa(t.partition) + ".>"
	for from+1 < to {
		raw, err := readNext(ctx, t.w.nc, t.w.opts.Stream, from+1, filter)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read what was delivered and never came: %w", err)
		case raw == nil || raw.Sequence >= to:
			return found, nil
		case len(found) == fillMost:
			return nil, errGap
		}
		from = raw.Sequence
		if d := t.stored(raw); slices.ContainsFunc(t.w.opts.Subjects, func(f string) bool { return covers(f, d.subject) }) {
			found = append(found, d)
		}
	}
	return found, nil
}

// readNext reads the first message of a stream from a sequence on whose subject matches; nil if there is none. Unlike the client's
// own call it gives a message whose headers cannot be read, without them: they may be why it never came.
func readNext(ctx context.Context, nc *nats.Conn, stream string, from uint64, filter string) (*jetstream.RawStreamMsg, error) {
	request, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": filter})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, err
	}
	if e := answer.Error; e != nil {
		if e.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return nil, nil
		}
		return nil, e
	}
	m := answer.Message
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		header = nil
	}
	return &jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Sequence, Header: header, Data: m.Data, Time: m.Time}, nil
}

// stored makes a delivery of a message of the stream.
func (t *tenure) stored(raw *jetstream.RawStreamMsg) delivery {
	msg := &storedMsg{raw: raw, nc: t.w.nc, stream: t.w.opts.Stream, consumer: partitionConsumer(t.w.opts.Consumer, t.partition)}
	return delivery{
		msg: msg, stream: t.w.opts.Stream, subject: partitionSubject(raw.Subject), sequence: raw.Sequence, deliveries: 1,
		stored: raw.Time, received: time.Now(),
	}
}

// storedMsg is an input as the stream holds it, with the acknowledgements of the delivery that never came.
type storedMsg struct {
	raw              *jetstream.RawStreamMsg
	nc               *nats.Conn
	stream, consumer string
	number           uint64
}

var _ jetstream.Msg = (*storedMsg)(nil)

func (m *storedMsg) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{
		Sequence: jetstream.SequencePair{Consumer: m.number, Stream: m.raw.Sequence}, NumDelivered: 1,
		Timestamp: m.raw.Time, Stream: m.stream, Consumer: m.consumer,
	}, nil
}

func (m *storedMsg) Data() []byte         { return m.raw.Data }
func (m *storedMsg) Headers() nats.Header { return m.raw.Header }
func (m *storedMsg) Subject() string      { return m.raw.Subject }

// Reply is where the server takes acknowledgements of that delivery.
func (m *storedMsg) Reply() string {
	return fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.0", m.stream, m.consumer, m.raw.Sequence, m.number, m.raw.Time.UnixNano())
}

func (m *storedMsg) say(word string) error { return m.nc.Publish(m.Reply(), []byte(word)) }

func (m *storedMsg) Ack() error { return m.say("+ACK") }

func (m *storedMsg) DoubleAck(ctx context.Context) error {
	_, err := m.nc.RequestWithContext(ctx, m.Reply(), []byte("+ACK"))
	return err
}

func (m *storedMsg) InProgress() error { return m.say("+WPI") }
func (m *storedMsg) Nak() error        { return m.say("-NAK") }
func (m *storedMsg) Term() error       { return m.say("+TERM") }

func (m *storedMsg) NakWithDelay(delay time.Duration) error {
	return m.say(fmt.Sprintf(`-NAK {"delay": %d}`, delay.Nanoseconds()))
}

func (m *storedMsg) TermWithReason(reason string) error { return m.say("+TERM " + reason) }
