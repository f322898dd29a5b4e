package topology

import (
	"strings"
	"testing"

	"millrace/internal/ingest/jsapi"
)

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
	if level, err := apiLevel(r.Ctx(), r.NC, jsapi.API{}); err != nil || level < levelExclusive {
		t.Errorf("the API has level %d (%v), want %d or more", level, err, levelExclusive)
	}
	wantLine(t, r.found(1000, roomy), "server", "(2.10 or later is needed)")
	r.exclusive(2)
	wantLine(t, r.found(1000, roomy), "server", "(2.14 or later is needed)")
}
