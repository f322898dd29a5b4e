package cliclient

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"millrace/client"
)

// TestPayloadsOfDeadLetters shows that payloads are printed only with --payload. They are text or base64, and truncated
// to --payload-bytes.
func TestPayloadsOfDeadLetters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		payload string
		max     int
		want    string
	}{
		{"some <text>", 0, `"bytes":11}`},
		{"some <text>", 11, `"bytes":11,"payload":"some <text>"}`},
		{"some <text>", 4, `"bytes":11,"payload":"some","payload_cut":true}`},
		{"aé€", math.MaxInt, `"bytes":6,"payload":"aé€"}`},
		{"aé€", 5, `"bytes":6,"payload":"aé","payload_cut":true}`},
		{"aé€", 2, `"bytes":6,"payload":"a","payload_cut":true}`},
		{"\x00\xff\n", 100, `"bytes":3,"payload":{"base64":"AP8K"}}`},
		{"\x00\xff\n", 2, `"bytes":3,"payload":{"base64":"AP8="},"payload_cut":true}`},
		{"", 100, `"bytes":0,"payload":""}`},
	} {
		r := newRig(t)
		m := message("dead.web", 7)
		m.Header.Set(client.HeaderReason, "too_large")
		m.Data = []byte(c.payload)
		r.publish(m)
		p, out, notes := r.printer()
		p.Payload = c.max
		if err := p.Print(r.Ctx()); err != nil || notes.String() != "" || !json.Valid([]byte(out.String())) || !strings.HasSuffix(out.String(), c.want+"}\n") {
			t.Errorf("%q, at most %d bytes: %v\n%s%s\nwant %s", c.payload, c.max, err, out, notes, c.want)
		}
	}
}

// TestThePayloadIsElsewhere shows that the printed line has the sequence of the message with the payload.
func TestThePayloadIsElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	m := message("dead.web", 7)
	m.Header.Set(client.HeaderReason, "too_large")
	m.Header.Set(client.HeaderOmitted, "payload")
	m.Header.Set(client.HeaderPayloadSequence, "4711")
	r.publish(m)
	p, out, _ := r.printer()
	p.Payload = 100
	if err := p.Print(r.Ctx()); err != nil || !strings.Contains(out.String(), `"omitted":"payload","payload_sequence":4711}`) {
		t.Error(fmt.Sprint(err, out))
	}
}
