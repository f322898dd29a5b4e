package jsapi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/natstest"
)

// TestMessagesAreRead reads messages, including one with headers that the client library can't parse.
func TestMessagesAreRead(t *testing.T) {
	t.Parallel()
	r := natstest.New(t)
	r.Create(jetstream.StreamConfig{Name: "IN", Subjects: []string{"in.>"}})
	natstest.PublishRaw(t, r.URL, natstest.RawInput{Subject: "in.a", Payload: []byte("plain")},
		natstest.RawInput{Subject: "in.b", Header: "NATS/1.0\r\nno colon\r\n\r\n", Payload: []byte("broken")},
		natstest.RawInput{Subject: "in.a", Header: "NATS/1.0\r\nKey: value\r\n\r\n", Payload: []byte("headed")})
	// The server doesn't confirm raw messages.
	r.Until("all are stored", func() bool { return r.Stream("IN").CachedInfo().State.Msgs == 3 })
	for _, c := range []struct {
		from       uint64
		filter     string
		want       uint64 // 0 means no message
		key        string
		unreadable bool
		payload    string
	}{
		{1, "in.>", 1, "", false, "plain"}, {2, "in.>", 2, "", true, "broken"}, {2, "in.a", 3, "value", false, "headed"},
		{4, "in.>", 0, "", false, ""}, {1, "in.c", 0, "", false, ""},
	} {
		m := natstest.Must(Next(r.Ctx(), r.JS, "IN", c.from, c.filter))(t)
		if (m != nil) != (c.want > 0) || m != nil && (m.Sequence != c.want || string(m.Data) != c.payload ||
			m.Header.Get("Key") != c.key || IsUnreadable(m.Header) != c.unreadable || m.Time.IsZero()) {
			t.Errorf("from %d on %s: %+v, want message %d", c.from, c.filter, m, c.want)
		}
	}
	if m, err := Last(r.Ctx(), r.JS, "IN", "in.a"); err != nil || m.Sequence != 3 {
		t.Errorf("the last message: %v, %v", m, err)
	}
	if _, err := Next(r.Ctx(), r.JS, "NONE", 1, ">"); err == nil {
		t.Error("a stream that doesn't exist has a message")
	}
}

func TestAllConsumersAreListed(t *testing.T) {
	t.Parallel()
	r := natstest.New(t)
	s := r.Create(jetstream.StreamConfig{Name: "IN", Subjects: []string{"in"}})
	const n = 300 // a page has 256
	for range n {
		c := jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Hour}
		natstest.Must(s.CreateConsumer(r.Ctx(), c))(t)
	}
	names, unknown := consumers(t, r.JS)
	slices.Sort(names)
	if len(slices.Compact(names)) != n || len(unknown) > 0 {
		t.Errorf("%d consumers and the unknown ones %q, want %d", len(names), unknown, n)
	}
}

// consumers returns the names in the list of a stream's consumers.
func consumers(t *testing.T, js jetstream.JetStream) (names, unknown []string) {
	t.Helper()
	all, unknown, err := Consumers(t.Context(), js, "IN")
	natstest.OK(t, err)
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names, unknown
}

// TestConsumersThatTheServerCanNotTell simulates a cluster with unavailable servers. The list then names consumers
// whose state is missing, and may have an entry for them.
func TestConsumersThatTheServerCanNotTell(t *testing.T) {
	t.Parallel()
	nc := natstest.New(t).NC
	const prefix = "CLUSTER."
	pages := map[string]string{
		`{"offset":0}`: `{"total":4,"consumers":[{"name":"a"},{"name":"away"},{"name":""}],"missing":["away","offline"]}`,
		`{"offset":3}`: `{"total":4,"consumers":[{"name":"b"}]}`,
	}
	natstest.Must(nc.Subscribe(prefix+"CONSUMER.LIST.IN", func(m *nats.Msg) { _ = m.Respond([]byte(pages[string(m.Data)])) }))(t)
	names, unknown := consumers(t, natstest.Must(jetstream.NewWithAPIPrefix(nc, prefix))(t))
	if want, away := []string{"a", "b"}, []string{"away", "offline"}; !slices.Equal(names, want) || !slices.Equal(unknown, away) {
		t.Errorf("the consumers are %q, and unknown are %q; want %q, %q", names, unknown, want, away)
	}
}

// TestRequestsFollowTheClient shows that the client's domain or prefix is in the subject of every request.
func TestRequestsFollowTheClient(t *testing.T) {
	t.Parallel()
	nc := natstest.New(t).NC
	for want, js := range map[string]jetstream.JetStream{
		"$JS.API.STREAM.INFO.IN":           natstest.Must(jetstream.New(nc))(t),
		"$JS.hub.API.STREAM.INFO.IN":       natstest.Must(jetstream.NewWithDomain(nc, "hub"))(t),
		"from.afar.STREAM.INFO.IN":         natstest.Must(jetstream.NewWithAPIPrefix(nc, "from.afar"))(t),
		"from.farther.away.STREAM.INFO.IN": natstest.Must(API{Prefix: "from.farther.away."}.New(nc))(t),
	} {
		if got := Of(js).Subject("STREAM.INFO.IN"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		asked := natstest.Must(nc.SubscribeSync(want))(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = js.Stream(ctx, "IN") }() // sends the client's own request
		if _, err := asked.NextMsg(natstest.Patience); err != nil {
			t.Errorf("the client doesn't use %q: %v", want, err)
		}
		cancel()
		natstest.OK(t, asked.Unsubscribe())
	}
}

// TestRequestsEnd checks that the client's default timeout bounds a request without a deadline.
func TestRequestsEnd(t *testing.T) {
	t.Parallel()
	nc := natstest.New(t).NC
	natstest.Must(nc.SubscribeSync("silent.>"))(t) // without a subscriber, the server would answer at once
	js := natstest.Must(API{Prefix: "silent"}.New(nc, jetstream.WithDefaultTimeout(time.Millisecond)))(t)
	if _, err := Next(t.Context(), js, "IN", 1, ">"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the request ends with %v", err)
	}
}

func TestReleases(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.14.0": true, "2.15.2": true, "2.14.0-RC.1": true, "3.0.0": true, "10.1": true,
		"2.13.9": false, "2.9.25": false, "1.14": false, "": false, "2": false, "unknown": false, "2.x": false, "3.x": false, "3": false,
		"15": false,
	} {
		if got := (Release{2, 14}).In(version); got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
	}
}
