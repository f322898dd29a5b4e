package faults

import "github.com/nats-io/nats.go/jetstream"

// The names that workers use where nothing else is set.
const (
	inputStream  = "INGEST"
	resultStream = "RESULTS"
)

// state is what a stream holds; false where nobody answers.
func (r *rig) state(stream string) (jetstream.StreamState, bool) {
	ctx, cancel := r.shortly()
	defer cancel()
	s, err := r.js.Stream(ctx, stream)
	if err != nil {
		return jetstream.StreamState{}, false
	}
	return s.CachedInfo().State, true
}

// settled is how many results and dead letters the result stream has ever stored, 0 where it does not answer.
func (r *rig) settled() int {
	state, _ := r.state(resultStream)
	return int(state.LastSeq)
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

// consumption is the state of all consumers of the input stream together.
type consumption struct {
	delivered, waiting, unacknowledged, redelivering int
}

// consumed asks for it; false where nobody answers or there is no consumer.
func (r *rig) consumed() (c consumption, ok bool) {
	ctx, cancel := r.shortly()
	defer cancel()
	s, err := r.js.Stream(ctx, inputStream)
	if err != nil {
		return c, false
	}
	list := s.ListConsumers(ctx)
	for info := range list.Info() {
		ok = true
		c.delivered += int(info.Delivered.Consumer)
		c.waiting += int(info.NumPending)
		c.unacknowledged += info.NumAckPending
		c.redelivering += info.NumRedelivered
	}
	return c, ok && list.Err() == nil
}

// isFinished says whether every input is acknowledged.
func (r *rig) isFinished() bool {
	c, ok := r.consumed()
	return ok && c.waiting == 0 && c.unacknowledged == 0
}
