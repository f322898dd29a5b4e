package partitioned

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/results"
)

// TestIDsSayWhichMessageItIsThatWasRead: an input that a lease reads from the stream has the same id as when the consumer
// delivers it. See TestIDsSayWhichMessageItIs of package ingest.
func TestIDsSayWhichMessageItIsThatWasRead(t *testing.T) {
	t.Parallel()
	stored := time.Unix(1700000000, 123456789)
	read := (&storedInputs{stream: "IN", server: &consumerServer{stream: "IN"}}).delivery(&jetstream.RawStreamMsg{Sequence: 7, Time: stored.UTC()}, 3)
	if got := results.MessageID(&read); got != "IN:7:1700000000123456789" {
		t.Errorf("the id of a message that is read from the stream is %q", got)
	}
}
