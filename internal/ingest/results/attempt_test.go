package results

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/publisher"
)

type counted struct{ puts int }

func (c *counted) Publish(_ context.Context, msgs []*nats.Msg, dst []publisher.Answer) []publisher.Answer {
	c.puts += len(msgs)
	return append(dst, make([]publisher.Answer, len(msgs))...)
}

// TestFurtherAttemptsGoOneByOne shows that messages that may already be published are sent one by one. In a batch the
// server silently drops known messages.
func TestFurtherAttemptsGoOneByOne(t *testing.T) {
	t.Parallel()
	first, further := &counted{}, &counted{}
	p := &Writer{first: first, again: further}
	msgs := []*nats.Msg{{}, {}}
	for attempt, want := range map[int]counted{1: {0}, 2: {2}, 3: {2}} {
		*first, *further = counted{}, counted{}
		if n := len(p.publishAttempt(t.Context(), attempt, msgs, nil)); n != len(msgs) || *further != want || first.puts+further.puts != len(msgs) {
			t.Errorf("attempt %d: %d answers, %d put together and %d one by one; want %d one by one", attempt, n, first.puts, further.puts, want.puts)
		}
	}
}
