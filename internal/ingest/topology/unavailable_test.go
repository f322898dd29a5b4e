package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestUnavailable checks which request errors are temporary, so the worker waits.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	api := func(code int, of jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: code, ErrorCode: of, Description: "a text"}
	}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"no answer", context.DeadlineExceeded, true},
		{"no answer, of the client", nats.ErrTimeout, true},
		{"nobody responds", fmt.Errorf("look up: %w", nats.ErrNoResponders), true},
		{"without a connection", nats.ErrReconnectBufExceeded, true},
		{"cancelled", context.Canceled, false},
		{"connection closed", nats.ErrConnectionClosed, false},
		{"no JetStream", jetstream.ErrJetStreamNotEnabled, true},
		{"no JetStream for the account", fmt.Errorf("look up: %w", jetstream.ErrJetStreamNotEnabledForAccount), true},
		{"no leader of the cluster", api(503, 10008), true},
		{"no leader of the stream", api(500, 10118), true},
		{"too few peers yet", api(400, 10005), true},
		{"no such stream", jetstream.ErrStreamNotFound, false},
		{"no such consumer", jetstream.ErrConsumerNotFound, false},
		{"subjects overlap", api(400, 10065), false},
		{"the client's own", jetstream.ErrInvalidStreamName, false},
		{"anything else", errors.New("anything"), false},
	} {
		if got := Unavailable(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func withoutJetStream(o *server.Options) { o.JetStream = false }

// TestFindingsTellWhatIsUnanswered shows that missing JetStream may be temporary, unlike a missing stream.
func TestFindingsTellWhatIsUnanswered(t *testing.T) {
	t.Parallel()
	without := newRig(t, withoutJetStream)
	list := Inspect(without.Ctx(), without.NC, without.topology, Use{})
	if len(list) != 1 || !list[0].Unanswered || !strings.Contains(list[0].Found, "JetStream does not answer") {
		t.Errorf("without JetStream the findings are %v", list)
	}
	r := newRig(t)
	for _, f := range Inspect(r.Ctx(), r.NC, r.topology, Use{}) {
		if f.Unanswered {
			t.Errorf("%v counts as unanswered", f)
		}
	}
}
