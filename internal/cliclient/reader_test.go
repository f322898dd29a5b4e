package cliclient

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pull"
)

// TestAReaderReadsEachMessageOnce stores new messages during the read, and deletes the reader's consumer. After that,
// the reader follows the stream. The messages need several requests.
func TestAReaderReadsEachMessageOnce(t *testing.T) {
	t.Parallel()
	const n = 7
	r := newRig(t)
	large := &nats.Msg{Subject: "out.web", Data: bytes.Repeat([]byte("x"), 3<<20)}
	small := &nats.Msg{Subject: "out.web", Data: []byte("small")}
	r.publish(slices.Repeat([]*nats.Msg{large}, n)...)
	reader := &Reader{JS: r.JS, Stream: "OUT", Subjects: []string{"out.>"}, Next: 1, AskLeader: true}
	var read []uint64
	visit := func(sequence uint64, _ *pull.Message) error {
		if read = append(read, sequence); len(read) == 1 {
			r.publish(small)
		}
		return nil
	}
	if err := reader.Advance(r.Ctx(), n, visit); err != nil || len(read) < n {
		t.Fatal(read, err)
	}
	if err := r.JS.DeleteConsumer(r.Ctx(), "OUT", reader.consumer); err != nil {
		t.Fatal(err)
	}
	r.publish(small)
	if err := reader.Advance(r.Ctx(), n+2, visit); err != nil {
		t.Fatal(err)
	}
	r.publish(small)
	ctx, cancel := context.WithCancel(r.Ctx())
	if err := reader.Follow(ctx, func(sequence uint64, m *pull.Message) error { cancel(); return visit(sequence, m) }); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}; !slices.Equal(read, want) {
		t.Errorf("read %v, want %v", read, want)
	}
}
