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

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// Deliveries that a tenure never saw, since they got lost on the way, are read from the stream. Without them nothing behind
// them could ever be acknowledged.

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
	for i, raw := range missing {
		sequences[i] = raw.Sequence
	}
	t.mu.Lock()
	t.floor.Fill(sequences, sequence)
	t.mu.Unlock()
	if len(missing) > 0 {
		t.log.Info("read inputs from the stream that were delivered and never came", "inputs", len(missing), "from", sequences[0])
	}
	for i, raw := range missing {
		if err := t.hand(ctx, hard, t.stored(raw, next+uint64(i)), false); err != nil {
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
func (t *tenure) missing(ctx context.Context, from, to uint64) (found []*jetstream.RawStreamMsg, err error) {
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
		if t.filtered(raw.Subject) {
			found = append(found, raw)
		}
	}
	return found, nil
}

// filtered says whether a subject of the partition is one that the consumer delivers.
func (t *tenure) filtered(subject string) bool {
	subject = topology.PartitionSubject(subject)
	return slices.ContainsFunc(t.w.opts.Subjects, func(f string) bool { return topology.Covers(f, subject) })
}

// readNext reads the first message of a stream from a sequence on whose subject matches; nil if there is none. Unlike the client's
// own call it gives a message whose headers cannot be read, without them: they may be why it never came.
func readNext(ctx context.Context, nc *nats.Conn, stream string, from uint64, filter string) (*jetstream.RawStreamMsg, error) {
	request, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": filter})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, natsconn.RequestTimeout)
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

// stored makes the partition's number-th delivery of a message of the stream.
func (t *tenure) stored(raw *jetstream.RawStreamMsg, number uint64) inflight.Delivery {
	msg := pull.Stored(t.nc, t.w.opts.Stream, topology.PartitionConsumer(t.w.opts.Consumer, t.partition), number, raw)
	return inflight.Delivery{
		Msg: msg, HeaderBytes: msg.HeaderBytes(),
		Stream: t.w.opts.Stream, Subject: topology.PartitionSubject(raw.Subject), Sequence: raw.Sequence, ConsumerSequence: number,
		NumDelivered: 1, Stored: raw.Time, Received: time.Now(), // not the first: it is not known when that was
	}
}
