package partitioned

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// TestIDsSayWhichMessageItIsThatWasRead shows that an input has the same id whether it is read from the stream or
// delivered by the consumer. See TestIDsSayWhichMessageItIs of package ingest.
func TestIDsSayWhichMessageItIsThatWasRead(t *testing.T) {
	t.Parallel()
	stored := time.Unix(1700000000, 123456789)
	read := (&storedInputs{stream: "IN", server: &consumerServer{stream: "IN"}}).delivery(&jetstream.RawStreamMsg{Sequence: 7, Time: stored.UTC()}, 3)
	if got := results.MessageID(&read); got != "IN:7:1700000000123456789" {
		t.Errorf("the id of a message that is read from the stream is %q", got)
	}
}

// TestOnlyInputsOfTheConsumerAreRead shows that only the consumer's own subjects are read. The stream's partition
// also has the subjects of other deployments.
func TestOnlyInputsOfTheConsumerAreRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	const n = 9
	r.Publish(0, n, func(i int) *nats.Msg { return &nats.Msg{Subject: fmt.Sprint("ingest.", i%3, ".a")} })
	stored := &storedInputs{server: r.idleLease().server, stream: r.topology.Stream, subjects: []string{"ingest.0.*", "ingest.2.>"}}
	var got []uint64
	for raw, err := range stored.between(r.Ctx(), 1, n) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, raw.Sequence)
	}
	if want := []uint64{3, 4, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("between 1 and %d, inputs %v are read, want %v", n, got, want)
	}
}
