package topology

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

// Use describes how the worker will use its topology, as far as the server's settings must fit that.
type Use struct {
	InFlight   int           // payloads that the pipelines can hold at once
	BatchBytes int           // the maximum size of a batch
	Linger     time.Duration // how long the oldest payload of a batch waits for more
}

// Inspect checks the server, the streams and the consumers against how the worker will use them.
func Inspect(ctx context.Context, nc *nats.Conn, l Topology, u Use) []finding.Finding {
	js, err := jetstream.New(nc)
	if err != nil {
		return []finding.Finding{{Level: finding.Error, What: "JetStream", Found: err.Error(), Advice: "report this as a bug"}}
	}
	i := &inspection{ctx: ctx, js: js, nc: nc, l: l, use: u, maxPayload: nc.MaxPayload(), cluster: nc.ConnectedClusterName()}
	if !i.server() {
		return i.findings
	}
	i.inputStream()
	i.resultStream()
	i.deadLetters()
	if l.Exclusive {
		i.partitions()
	} else {
		i.consumer()
	}
	i.permissions()
	return i.findings
}

// permissions reports the requests that the server refused. A request without permission gets no answer.
func (i *inspection) permissions() {
	if err := i.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		i.say(finding.Error, "permissions", err.Error(), "grant it to the worker's user: docs/security.md lists the permissions that it needs")
	}
}

type inspection struct {
	ctx      context.Context
	js       jetstream.JetStream
	nc       *nats.Conn
	l        Topology
	use      Use
	findings []finding.Finding

	maxPayload int64  // of the server
	cluster    string // its name; empty for a single server
}

func (i *inspection) say(l finding.Level, what, found, advice string) {
	i.findings = append(i.findings, finding.Finding{Level: l, What: what, Found: found, Advice: advice})
}

// missing reports what provisioning would create.
func (i *inspection) missing(what, found string) {
	i.findings = append(i.findings, finding.Finding{Level: finding.Error, What: what, Found: found, Missing: true,
		Advice: "create it, or set MILLRACE_PROVISION=true to have it created"})
}

func (i *inspection) server() bool {
	nc, batchBytes := i.nc, i.use.BatchBytes
	what := "server " + nc.ConnectedServerName()
	if _, err := i.js.AccountInfo(i.ctx); err != nil {
		i.say(finding.Error, what, "JetStream does not answer: "+err.Error(),
			"enable JetStream on the server and for this account")
		return false
	}
	found := fmt.Sprintf("version %s, max_payload %d bytes; unless sync_interval is \"always\" in the server's jetstream block it confirms "+
		"before it syncs to disk, so with one replica a power cut can lose what it confirmed last", nc.ConnectedServerVersion(), nc.MaxPayload())
	if nc.MaxPayload() > int64(batchBytes) {
		i.say(finding.Warning, what, found, fmt.Sprintf("payloads over %d bytes go to the dead-letter subject; raise MILLRACE_BATCH_BYTES "+
			"to at least max_payload", batchBytes))
		return true
	}
	i.say(finding.OK, what, found, "")
	return true
}
