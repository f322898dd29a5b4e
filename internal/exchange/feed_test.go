package exchange

import (
	"bytes"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestABacklogEndsWhereItBegan: a message that is stored while the backlog is read belongs to what follows. The backlog is larger than what
// the client requests ahead, so the server counts the new message as pending when it sends the backlog's last one.
func TestABacklogEndsWhereItBegan(t *testing.T) {
	t.Parallel()
	const n = 7
	r := newRig(t)
	large := &nats.Msg{Subject: "out.web", Data: bytes.Repeat([]byte("x"), 3<<20)}
	r.publish(slices.Repeat([]*nats.Msg{large}, n)...)
	f, err := openFeed(r.Ctx(), r.JS, "OUT", []string{"out.>"}, n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	var read, pending []uint64
	if err := f.backlog(r.Ctx(), func(m jetstream.Msg) error {
		if read == nil {
			r.publish(&nats.Msg{Subject: "out.web", Data: []byte("new")})
		}
		meta, err := m.Metadata()
		read, pending = append(read, meta.Sequence.Stream), append(pending, meta.NumPending)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := []uint64{1, 2, 3, 4, 5, 6, 7}; !slices.Equal(read, want) {
		t.Fatalf("the backlog has the messages %v, want %v", read, want)
	}
	if pending[n-1] != 1 {
		t.Errorf("the server counts %d messages behind the backlog's last one, so this test shows nothing", pending[n-1])
	}
	follow := make(chan jetstream.Msg, 1)
	go func() { _ = f.follow(r.Ctx(), follow) }()
	if m := <-follow; string(m.Data()) != "new" {
		t.Errorf("what follows has %d bytes", len(m.Data()))
	}
}
