package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
)

// Capability describes whether a stream accepts fast batches, with texts for the log and for the stream's administrator.
type Capability struct {
	Batches bool   // whether the stream accepts fast batches
	Found   string // reason for the value of Batches
	Advice  string // how to enable fast batches; empty if the stream accepts them
}

func (c Capability) String() string {
	if c.Advice == "" {
		return c.Found
	}
	return c.Found + ": " + c.Advice
}

// firstFast is the first server release that supports fast batches.
var firstFast = jsapi.Release{Major: 2, Minor: 14}

// ServerBatches reports whether a server with the given version supports fast batches.
func ServerBatches(version string) bool { return firstFast.In(version) }

// Ask queries whether a stream accepts fast batches. A missing stream doesn't. Ask returns an error if the query fails.
func Ask(ctx context.Context, js jetstream.JetStream, stream string) (Capability, error) {
	found, _, err := ask(ctx, js, stream)
	return found, err
}

// ask is like Ask. It also returns the stream's info, or nil if the stream doesn't exist.
func ask(ctx context.Context, js jetstream.JetStream, stream string) (Capability, *jetstream.StreamInfo, error) {
	s, err := js.Stream(ctx, stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return Capability{Found: fmt.Sprintf("one publish a result: there is no stream %q", stream), Advice: "create it"}, nil, nil
	case err != nil:
		return Capability{}, nil, fmt.Errorf("check whether stream %q accepts batches: %w: check the account's permissions on the JetStream API", stream, err)
	}
	info := s.CachedInfo()
	return judgeStream(info.Config, js.Conn().ConnectedServerVersion()), info, nil
}

// judgeStream derives the capability from a stream's settings.
func judgeStream(c jetstream.StreamConfig, version string) Capability {
	switch {
	case c.AllowBatchPublish:
		return Capability{Batches: true, Found: "one commit a batch: the stream allows batch publish"}
	case !ServerBatches(version):
		return Capability{Found: "one publish a result: server " + version + " cannot publish in batches",
			Advice: fmt.Sprintf("upgrade it to %s or later and set allow_batched on the stream (nats stream edit %s --allow-fast)", firstFast, c.Name)}
	}
	return Capability{Found: "one publish a result: the stream does not allow batch publish",
		Advice: "set allow_batched on the stream (nats stream edit " + c.Name + " --allow-fast; not allow_atomic, which --allow-batch sets)"}
}
