package audit

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestAReaderWhoseConsumerIsGone goes on with a new one, and reads each message once.
func TestAReaderWhoseConsumerIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inputs(5)
	s := &reader{js: r.JS, stream: "OUT", next: 1}
	var got []uint64
	read := func(end uint64) {
		t.Helper()
		if err := s.advance(r.Ctx(), end, func(sequence uint64, _ string, _ nats.Header) error { got = append(got, sequence); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	r.results(1, 3)
	read(3)
	if err := r.JS.DeleteConsumer(r.Ctx(), "OUT", s.consumer); err != nil {
		t.Fatal(err)
	}
	r.results(4, 5)
	read(5)
	if want := []uint64{1, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}
