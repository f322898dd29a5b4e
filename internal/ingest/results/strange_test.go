package results

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/publisher"
)

func TestShortSubject(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", publisher.MaxSubject)
	for subject, want := range map[string]string{
		"a.b.": "a.b.", whole: whole, whole + "y": whole, whole[1:] + ".z": whole[1:],
	} {
		if got := shortSubject(subject); got != want {
			t.Errorf("shortSubject of %d bytes has %d, want %d", len(subject), len(got), len(want))
		}
	}
}

// TestHeadersThatPassThroughCanBeWritten compares passThrough with the client, which reports no size for an invalid
// header.
func TestHeadersThatPassThroughCanBeWritten(t *testing.T) {
	t.Parallel()
	for c := range 256 {
		key := "a" + string([]byte{byte(c)})
		_, passes := passThrough(nats.Header{key: {"b"}}, 0, true)[key]
		if writes := (&nats.Msg{Header: nats.Header{key: nil}}).Size() > 0; passes != writes {
			t.Errorf("header %q passes through: %v; the client writes it: %v", key, passes, writes)
		}
	}
	if got := passThrough(nats.Header{"": {"b"}}, 0, true); len(got) != 0 {
		t.Errorf("a header without a key passes through: %v", got)
	}
}
