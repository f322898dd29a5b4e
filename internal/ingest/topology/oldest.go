package topology

import "millrace/internal/ingest/jsapi"

// The oldest releases of nats-server that the delivery modes work with. `.ci/run oldest` runs both modes on their first versions.
var (
	// OldestShared has consumers with several filters, and metadata of streams and consumers.
	OldestShared = jsapi.Release{Major: 2, Minor: 10}

	// OldestExclusive has consumers that are pinned to a client, and requests that reset them.
	OldestExclusive = jsapi.Release{Major: 2, Minor: 14}
)

// atomicBatches is the first release with atomic batches.
var atomicBatches = jsapi.Release{Major: 2, Minor: 12}

// tooOld returns what is wrong with the version of the connected server and what to do, or empty texts. It doesn't know the version of a
// JetStream that is elsewhere.
func tooOld(version string, l Topology) (found, advice string) {
	switch {
	case l.API != jsapi.API{}:
	case !OldestShared.In(version):
		return "version " + version + ", and Millrace needs nats-server " + OldestShared.String(), "upgrade the server"
	case l.Exclusive && !OldestExclusive.In(version):
		return "version " + version + ", and exclusive delivery needs nats-server " + OldestExclusive.String(),
			"upgrade the server, or set MILLRACE_DELIVERY=shared, which needs " + OldestShared.String()
	}
	return "", ""
}

// oldest returns the oldest release that the delivery mode works with.
func oldest(l Topology) jsapi.Release {
	if l.Exclusive {
		return OldestExclusive
	}
	return OldestShared
}
