package topology

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/jsapi"
)

// TestInspectWithoutJetStream shows that missing JetStream is the only finding. The problem may be temporary. The advice names the
// setting of the JetStream domain or prefix, if there is one.
func TestInspectWithoutJetStream(t *testing.T) {
	t.Parallel()
	for advice, api := range map[string]jsapi.API{
		"enable JetStream": {}, "set MILLRACE_NATS_JS_DOMAIN": {Domain: "nowhere"}, "set MILLRACE_NATS_JS_PREFIX": {Prefix: "from.nowhere"},
	} {
		r := newRig(t, func(o *server.Options) { o.JetStream = api != jsapi.API{} })
		r.topology.API = api
		list := Inspect(r.Ctx(), r.NC, r.topology, r.use)
		if len(list) != 1 || !list[0].Unanswered {
			t.Errorf("the findings are %v, want one that is unanswered", list)
		}
		wantLine(t, r.found(), "error server", "JetStream does not answer", advice, strings.TrimPrefix(api.Domain+api.Prefix, "from."))
	}
}

// TestInspectWithoutTheRightToAsk shows that a missing permission for a request or its answer is reported. The
// missing answer must not be reported as missing JetStream.
func TestInspectWithoutTheRightToAsk(t *testing.T) {
	t.Parallel()
	for subject, refused := range map[string]server.Permissions{
		`"$JS.API.INFO"`: {Publish: &server.SubjectPermission{Deny: []string{"$JS.API.INFO"}}},
		`"_INBOX.`:       {Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}},
	} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *server.Options) {
				o.Users, o.NoAuthUser = []*server.User{{Username: "worker", Password: "worker", Permissions: &refused}}, "worker"
			})
			ctx, cancel := context.WithTimeout(r.Ctx(), 2*time.Second) // the answer never arrives
			defer cancel()
			list := Inspect(ctx, r.NC, r.topology, Use{})
			if len(list) != 1 || list[0].What != "permissions" || !strings.Contains(list[0].Found, subject) || !strings.Contains(list[0].Advice, "grant it to the worker's user") {
				t.Errorf("the findings are %v", list)
			}
		})
	}
}

func TestServersThatAreTooOld(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version       string
		level         int
		l             Topology
		found, advice string // empty means new enough
	}{
		{"2.10.0", 0, Topology{}, "", ""},
		{"2.9.25", 0, Topology{}, "version 2.9.25, and Millrace needs nats-server 2.10", "upgrade"},
		{"2.14.0", 0, Topology{Exclusive: true}, "", ""},
		{"2.13.1", 0, Topology{Exclusive: true}, "version 2.13.1, and exclusive delivery needs nats-server 2.14", "MILLRACE_DELIVERY=shared"},
		{"2.9.25", 0, Topology{Exclusive: true}, "Millrace needs nats-server 2.10", "upgrade"},
		// The leaf node's version does not imply the hub's version.
		{"2.9.25", 4, Topology{Exclusive: true, API: jsapi.API{Domain: "hub"}}, "", ""},
		{"2.9.25", 0, Topology{API: jsapi.API{Domain: "hub"}}, "", ""},
		{"2.15.2", 3, Topology{Exclusive: true, API: jsapi.API{Prefix: "from.afar"}}, "level 3 of its API, and exclusive delivery needs level 4, of nats-server 2.14", "MILLRACE_DELIVERY=shared"},
	} {
		found, advice := tooOld(c.version, c.level, c.l)
		if (found == "") != (c.found == "") || !strings.Contains(found, c.found) || !strings.Contains(advice, c.advice) {
			t.Errorf("%s, exclusive %v: %q, %q; want %q, %q", c.version, c.l.Exclusive, found, advice, c.found, c.advice)
		}
	}
}

// TestTheOldestReleaseIsNamed shows that startup and `worker check` name the oldest supported release.
func TestTheOldestReleaseIsNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if info, err := r.JS.AccountInfo(r.Ctx()); err != nil || info.API.Level < levelExclusive {
		t.Errorf("the API has %+v (%v), want level %d or more", info, err, levelExclusive)
	}
	wantLine(t, r.found(), "server", "(2.10 or later is needed)")
	r.exclusive(2)
	wantLine(t, r.found(), "server", "(2.14 or later is needed)")
}

func TestInspectOfFrames(t *testing.T) {
	t.Parallel()
	const payload = 1 << 20
	stream := limit{1500, "stream RESULTS", "raise max_msg_size of stream RESULTS"}
	for _, c := range []struct {
		name    string
		frames  Frames
		results limit
		want    string // the start of the only finding
	}{
		{"as it should be", Frames{Framed: true, Records: 1000, Bytes: payload, Result: 600, ResultMore: 500}, limitOfServer(payload),
			"frames: up to 1000 records and 1048576 bytes per message; a record may have up to 4096 bytes (MILLRACE_BATCH_BYTES)"},
		{"compressed single records", Frames{Compressed: true, Records: 1000, Bytes: 2 * payload, Result: 2 * payload}, limitOfServer(payload),
			"frames: a record may have up to 4096 bytes (MILLRACE_BATCH_BYTES)"},
		{"fewer bytes than the server takes", Frames{Framed: true, Records: 1000, Bytes: payload - 1, Result: 600, ResultMore: 500}, limitOfServer(payload),
			"frames: the server takes messages of 1048576 bytes, and MILLRACE_FRAME_BYTES is 1048575: larger ones that are framed or " +
				"compressed go to the dead-letter subject; raise MILLRACE_FRAME_BYTES to at least 1048576"},
		{"results in parts", Frames{Framed: true, Records: 65536, Bytes: payload, Result: 524, ResultMore: 1000}, limitOfServer(payload),
			"frames: up to 65536 records and 1048576 bytes per message; a record may have up to 4096 bytes (MILLRACE_BATCH_BYTES); the result " +
				"of more than about 1048 records comes in parts, because the server takes messages of 1048576 bytes"},
		{"a result that is larger than a message", Frames{Framed: true, Records: 2, Bytes: payload, Result: payload, ResultMore: payload},
			limitOfServer(payload), "frames: the result of one record may have 1048576 bytes, and the server takes messages of 1048576: a record " +
				"with a larger result goes to the dead-letter subject; raise the server's max_payload, or use"},
		{"a result that is larger than its stream takes", Frames{Framed: true, Records: 2, Bytes: payload, Result: 1000}, stream,
			"frames: the result of one record may have 1000 bytes, and stream RESULTS takes messages of 1500: a record with a larger result " +
				"goes to the dead-letter subject; raise max_msg_size of stream RESULTS"},
	} {
		i := &inspection{maxPayload: payload, use: Use{BatchBytes: 4096, Frames: c.frames}}
		i.frames(c.results)
		if len(i.findings) != 1 || !strings.HasPrefix(i.findings[0].String(), c.want) || (i.findings[0].Advice == "") != (i.findings[0].Level == finding.OK) {
			t.Errorf("%s: found %v, want %s", c.name, i.findings, c.want)
		}
	}
}

// TestInspectOfTheLargestResult shows that a result that exactly fills a message with its headers causes no warning.
func TestInspectOfTheLargestResult(t *testing.T) {
	t.Parallel()
	const payload = 1 << 20
	for more, warned := range map[int]bool{0: false, 1: true} {
		i := &inspection{use: Use{Frames: Frames{Result: payload - resultHeaders + more}}}
		(&stream{inspection: i}).sizes(limitOfServer(payload))
		if got := len(i.findings) == 1 && i.findings[0].Level == finding.Warning; got != warned {
			t.Errorf("for a result that is %d bytes larger than a message allows: %v, want a warning: %v", more, i.findings, warned)
		}
	}
}

// TestUnavailable checks which request errors are temporary, so the worker waits.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	api := func(code int, of jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: code, ErrorCode: of, Description: "a text"}
	}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"no answer", context.DeadlineExceeded, true},
		{"no answer, of the client", nats.ErrTimeout, true},
		{"nobody responds", fmt.Errorf("look up: %w", nats.ErrNoResponders), true},
		{"without a connection", nats.ErrReconnectBufExceeded, true},
		{"cancelled", context.Canceled, false},
		{"connection closed", nats.ErrConnectionClosed, false},
		{"no JetStream", jetstream.ErrJetStreamNotEnabled, true},
		{"no JetStream for the account", fmt.Errorf("look up: %w", jetstream.ErrJetStreamNotEnabledForAccount), true},
		{"no leader of the cluster", api(503, 10008), true},
		{"no leader of the stream", api(500, 10118), true},
		{"too few peers yet", api(400, 10005), true},
		{"no such stream", jetstream.ErrStreamNotFound, false},
		{"no such consumer", jetstream.ErrConsumerNotFound, false},
		{"subjects overlap", api(400, 10065), false},
		{"the client's own", jetstream.ErrInvalidStreamName, false},
		{"anything else", errors.New("anything"), false},
	} {
		if got := Unavailable(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestInspectNamesTheRightToReadMarkers shows that a missing permission is reported. A worker must read the last
// marker when it takes over a partition.
func TestInspectNamesTheRightToReadMarkers(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *server.Options) {
		o.Users, o.NoAuthUser = []*server.User{{Username: "admin", Password: "admin"}, {Username: "worker", Password: "worker", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.GET.RESULTS"}}}}}, "admin"
	})
	r.exclusive(2)
	r.provision()
	level := finding.OK
	for _, f := range Inspect(r.Ctx(), r.Connect(r.URL, nats.UserInfo("worker", "worker")), r.topology, Use{InFlight: 10, BatchBytes: roomy}) {
		if strings.Contains(f.Found, "read the last commit marker") && strings.Contains(f.Advice, "$JS.API.STREAM.MSG.GET.RESULTS and on commits.RESULTS.>") {
			level = f.Level
		}
	}
	if level != finding.Error {
		t.Error("the missing permission is not reported as an error")
	}
}
