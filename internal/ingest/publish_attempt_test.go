package ingest

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/store"
)

// counted is a store that counts what is put.
type counted struct{ puts int }

func (c *counted) Put(_ context.Context, msgs []*nats.Msg, dst []store.Answer) []store.Answer {
	c.puts += len(msgs)
	return append(dst, make([]store.Answer, len(msgs))...)
}

// What may have been published before goes one by one: among many the server drops what it knows without saying so.
func TestFurtherAttemptsGoOneByOne(t *testing.T) {
	t.Parallel()
	first, further := &counted{}, &counted{}
	p := publisher{results: first, singles: further}
	msgs := []*nats.Msg{{}, {}}
	for attempt, want := range map[int]counted{1: {0}, 2: {2}, 3: {2}} {
		*first, *further = counted{}, counted{}
		if n := len(p.publishAttempt(t.Context(), attempt, msgs, nil)); n != len(msgs) || *further != want || first.puts+further.puts != len(msgs) {
			t.Errorf("attempt %d: %d answers, %d put together and %d one by one; want %d one by one", attempt, n, first.puts, further.puts, want.puts)
		}
	}
}
