package faults

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// The default names that workers use.
const (
	inputStream  = "INGEST"
	resultStream = "RESULTS"
	deadStream   = "RESULTS_DEADLETTER"
)

// state returns a stream's state. It returns false if no server answers.
func (r *rig) state(stream string) (jetstream.StreamState, bool) {
	ctx, cancel := r.shortly()
	defer cancel()
	s, err := r.JS.Stream(ctx, stream)
	if err != nil {
		return jetstream.StreamState{}, false
	}
	return s.CachedInfo().State, true
}

// settled returns the number of results and dead letters that were ever stored. A stream that does not answer adds 0.
func (r *rig) settled() int {
	results, _ := r.state(resultStream)
	dead, _ := r.state(deadStream)
	return int(results.LastSeq + dead.LastSeq)
}

// awaitResults returns when n more results are stored.
func (r *rig) awaitResults(n int) {
	r.t.Helper()
	first := -1
	r.until("more results are stored", func() bool {
		state, ok := r.state(resultStream)
		if ok && first < 0 {
			first = int(state.LastSeq)
		}
		return ok && int(state.LastSeq) >= first+n
	})
}

// consumption is the combined state of the consumers of the input stream. It omits the consumers from which workers
// read delivered inputs again.
type consumption struct {
	delivered, waiting, unacknowledged, redelivering int
}

// consumed returns the combined state of the consumers. It returns false if no server answers or there is no consumer.
func (r *rig) consumed() (c consumption, ok bool) {
	ctx, cancel := r.shortly()
	defer cancel()
	s, err := r.JS.Stream(ctx, inputStream)
	if err != nil {
		return c, false
	}
	list := s.ListConsumers(ctx)
	for info := range list.Info() {
		if info.Config.Durable == "" {
			continue
		}
		ok = true
		c.delivered += int(info.Delivered.Consumer)
		c.waiting += int(info.NumPending)
		c.unacknowledged += info.NumAckPending
		c.redelivering += info.NumRedelivered
	}
	return c, ok && list.Err() == nil
}

// mustConsumed returns the combined state of the consumers, and waits for servers that don't answer.
func (r *rig) mustConsumed() (c consumption) {
	r.t.Helper()
	r.until("the consumers answer", func() bool {
		var ok bool
		c, ok = r.consumed()
		return ok
	})
	return c
}

// isFinished reports whether every input is acknowledged.
func (r *rig) isFinished() bool {
	c, ok := r.consumed()
	return ok && c.waiting == 0 && c.unacknowledged == 0 && r.isToldOfAll()
}

// isToldOfAll reports whether every consumer has delivered the last of its inputs. The server updates its consumers
// shortly after it has confirmed an input. So a consumer that seems idle may not have the input yet.
func (r *rig) isToldOfAll() bool {
	ctx, cancel := r.shortly()
	defer cancel()
	s, err := r.JS.Stream(ctx, inputStream)
	if err != nil {
		return false
	}
	consumers := s.ListConsumers(ctx)
	for info := range consumers.Info() {
		for _, filter := range append(info.Config.FilterSubjects, info.Config.FilterSubject) {
			if filter == "" {
				continue
			}
			last, err := r.lastInput(ctx, filter)
			if err != nil || info.Delivered.Stream < last {
				return false
			}
		}
	}
	return consumers.Err() == nil
}

// lastInput returns the sequence of the last input on a subject, or 0 if there is none. The client library's own call
// fails for headers that it can't parse.
func (r *rig) lastInput(ctx context.Context, subject string) (uint64, error) {
	msg, err := r.JS.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+inputStream, fmt.Appendf(nil, `{"last_by_subj":%q}`, subject))
	if err != nil {
		return 0, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return 0, err
	}
	if answer.Error != nil && answer.Error.ErrorCode != jetstream.JSErrCodeMessageNotFound {
		return 0, answer.Error
	}
	return answer.Message.Sequence, nil
}
