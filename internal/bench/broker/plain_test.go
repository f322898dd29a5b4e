package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/pull"
)

// TestGroupsKeepOrderAndBounds checks that every input is in exactly one group, in order, with any bounds. A group may exceed its bounds by
// its last input only, and contains only waiting inputs.
func TestGroupsKeepOrderAndBounds(t *testing.T) {
	const n, size = 100, 10
	for _, w := range []*plain{{groupMessages: 1, groupBytes: 1 << 20}, {groupMessages: 7, groupBytes: 1 << 20}, {groupMessages: 1 << 20, groupBytes: 35}, {groupMessages: n, groupBytes: n * size}} {
		inputs := make(chan *pull.Message, n)
		for i := range n {
			inputs <- pull.Stored(nil, "", "", 0, &jetstream.RawStreamMsg{Data: binary.LittleEndian.AppendUint64(make([]byte, 0, size), uint64(i))[:size:size]})
		}
		for next := 0; next < n; {
			group, err := w.gather(t.Context(), inputs)
			if err != nil {
				t.Fatal(err)
			}
			full := len(group) == w.groupMessages || len(group)*size >= w.groupBytes
			if len(group) > w.groupMessages || (len(group)-1)*size >= w.groupBytes || !full && len(inputs) > 0 {
				t.Errorf("%d messages, %d bytes: a group of %d", w.groupMessages, w.groupBytes, len(group))
			}
			for _, m := range group {
				if i := int(binary.LittleEndian.Uint64(m.Data())); i != next {
					t.Fatalf("%d messages, %d bytes: got input %d, want input %d", w.groupMessages, w.groupBytes, i, next)
				}
				next++
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.gather(ended, inputs); !errors.Is(err, context.Canceled) {
			t.Errorf("without inputs, the error is %v", err)
		}
	}
}

// TestServerWithoutBatches checks that the plain Go worker reports a server that can't store batches.
func TestServerWithoutBatches(t *testing.T) {
	p := newTestPair(t, true)
	results, err := p.js.Stream(t.Context(), outStream+p.name)
	if err != nil {
		t.Fatal(err)
	}
	config := results.CachedInfo().Config
	config.AllowBatchPublish = false
	if _, err := p.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	err = (&plain{connections: 1}).prepare(t.Context(), pairs{p}, load{content: newContent(single(10), 7), n: 1})
	if err == nil || !strings.Contains(err.Error(), "use version 2.14 or later") {
		t.Errorf("the error is %v", err)
	}
}
