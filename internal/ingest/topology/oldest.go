package topology

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/jsapi"
)

// The oldest releases of nats-server that the delivery modes support. `.ci/run oldest` runs both modes on the first versions of
// these releases.
var (
	// OldestShared is the first release with several filters per consumer, and with metadata of streams and consumers.
	OldestShared = jsapi.Release{Major: 2, Minor: 10}

	// OldestExclusive is the first release with both pinned consumers and requests that reset consumers.
	OldestExclusive = jsapi.Release{Major: 2, Minor: 14}
)

// atomicBatches is the first release with atomic batches.
var atomicBatches = jsapi.Release{Major: 2, Minor: 12}

// levelExclusive is the JetStream API level of OldestExclusive.
const levelExclusive = 4

// tooOld returns the problem and the advice if the server is too old, and otherwise empty texts. version is the version of the
// connected server. If JetStream is in a domain or another account, tooOld checks level instead, the level of its API. Servers
// before 2.11 have no level.
func tooOld(version string, level int, l Topology) (found, advice string) {
	const shared = ", or set MILLRACE_DELIVERY=shared, which needs "
	switch elsewhere := l.API != (jsapi.API{}); {
	case elsewhere && l.Exclusive && level < levelExclusive:
		return fmt.Sprintf("JetStream elsewhere has level %d of its API, and exclusive delivery needs level %d, of nats-server %s", level, levelExclusive, OldestExclusive),
			"upgrade its servers" + shared + OldestShared.String()
	case elsewhere:
	case !OldestShared.In(version):
		return "version " + version + ", and Millrace needs nats-server " + OldestShared.String(), "upgrade the server"
	case l.Exclusive && !OldestExclusive.In(version):
		return "version " + version + ", and exclusive delivery needs nats-server " + OldestExclusive.String(), "upgrade the server" + shared + OldestShared.String()
	}
	return "", ""
}

// levelTimeout is the time limit for the query of the API level. A cluster without a leader doesn't answer.
const levelTimeout = 5 * time.Second

// apiLevel returns the level of the JetStream API. It is 0 if the server has none.
func apiLevel(ctx context.Context, nc *nats.Conn, api jsapi.API) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, levelTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, api.Subject("INFO"), nil)
	if err != nil {
		return 0, err
	}
	var info struct {
		API struct {
			Level int `json:"level"`
		} `json:"api"`
	}
	err = json.Unmarshal(m.Data, &info)
	return info.API.Level, err
}

// oldest returns the oldest release that supports the delivery mode.
func oldest(l Topology) jsapi.Release {
	if l.Exclusive {
		return OldestExclusive
	}
	return OldestShared
}
