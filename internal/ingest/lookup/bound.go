package lookup

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// bound returns a moment before which no result of these inputs can have been stored. One such moment is oldest, when
// the first of them was stored itself. With a long backlog that is far back, so bound searches for a later one.
// Inputs are delivered for the first time in the order of their sequences. A result without the header
// Settings.Deliveries was stored within the duplicate window of its input's first delivery. If that input comes
// before all of these, their first delivery was at most that window before the result was stored.
func (r *Results) bound(ctx context.Context, inputs []Wanted, oldest time.Time) time.Time {
	lowest := inputs[0]
	for _, in := range inputs {
		if in.Sequence < lowest.Sequence {
			lowest = in
		}
	}
	info, err := r.info(ctx, r.s.Streams[0])
	if err != nil || info == nil || info.State.Msgs == 0 {
		return oldest
	}
	filter := ">"
	if r.s.BySubject {
		filter = lowest.Subject
	}
	for low, high := info.State.FirstSeq, info.State.LastSeq+1; low < high; {
		middle := low + (high-low)/2
		m, err := r.next(ctx, middle, filter)
		switch {
		case err != nil:
			return oldest
		case m == nil || m.sequence >= high:
			high = middle
		case m.before(lowest.Input, r.s):
			if at := m.stored.Add(-info.Config.Duplicates - slack); at.After(oldest) {
				oldest = at
			}
			low = m.sequence + 1
		default:
			high = middle
		}
	}
	return oldest
}

// stored is a message of the result stream.
type stored struct {
	sequence uint64
	stored   time.Time
	header   nats.Header
}

// before reports whether a message is the result of an earlier input than in, stored soon after its input's first
// delivery.
func (m *stored) before(in Input, s Settings) bool {
	of, old, ok := parse(m.header.Get(jetstream.MsgIDHeader), s.Input)
	return ok && !old && of.Sequence < in.Sequence && m.header.Get(s.Deliveries) == ""
}

// next returns the first message from a sequence on whose subject matches; nil if there is none.
func (r *Results) next(ctx context.Context, from uint64, filter string) (*stored, error) {
	request, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": filter})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	msg, err := r.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+r.s.Streams[0], request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
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
	header, err := nats.DecodeHeadersMsg(answer.Message.Header)
	if err != nil {
		header = nil // a message from another program
	}
	return &stored{sequence: answer.Message.Sequence, stored: answer.Message.Time, header: header}, nil
}
