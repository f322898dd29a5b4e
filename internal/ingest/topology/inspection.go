package topology

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

// inspection has the shared data of the inspectors: the objects to check, and the findings so far.
type inspection struct {
	ctx      context.Context
	js       jetstream.JetStream
	nc       *nats.Conn
	l        Topology
	use      Use
	findings []finding.Finding

	maxPayload int64  // the server's max_payload in bytes
	results    limit  // size limit of messages with results
	cluster    string // name of the server's cluster; empty for a single server
}

type limit struct {
	bytes int64
	of    string // the server or stream with the limit
	raise string // advice on raising the limit
}

func (i *inspection) say(l finding.Level, what, found, advice string) {
	i.findings = append(i.findings, finding.Finding{Level: l, What: what, Found: found, Advice: advice})
}

// reportMissing reports a missing stream or consumer that provisioning would create, and the command that creates
// it.
func (i *inspection) reportMissing(what, found, command string) {
	i.findings = append(i.findings, finding.Finding{Level: finding.Error, What: what, Found: found, Missing: true,
		Advice: "create it (" + command + "), or set MILLRACE_PROVISION=true to have it created"})
}

func (i *inspection) failed(what string, err error, advice string) {
	i.findings = append(i.findings, finding.Finding{Level: finding.Error, What: what, Found: err.Error(), Advice: advice, Unanswered: Unavailable(err)})
}

// withReplicas returns c with the number of replicas that provisioning would try first.
func (i *inspection) withReplicas(c jetstream.StreamConfig) jetstream.StreamConfig {
	if c.Replicas == 0 && i.cluster != "" {
		c.Replicas = clusterReplicas
	}
	return c
}

func (i *inspection) hasInterest() bool {
	s, err := i.js.Stream(i.ctx, i.l.Stream)
	return err == nil && s.CachedInfo().Config.Retention == jetstream.InterestPolicy
}

// dropped returns a warning about inputs that are lost while a consumer is missing. It is empty if none are
// lost.
func (i *inspection) dropped() string {
	if i.hasInterest() {
		return ", and with interest retention the stream drops inputs for which there is no consumer: create the consumers before anybody publishes"
	}
	return ""
}

// keepInputs returns advice on keeping the inputs before a consumer is deleted. It is empty if the deletion
// removes no inputs.
func (i *inspection) keepInputs() string {
	if i.hasInterest() {
		return fmt.Sprintf("its inputs would go with it, so first keep them (nats stream edit %s --retention limits); ", i.l.Stream)
	}
	return ""
}
