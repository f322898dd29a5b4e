package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// serverInspector checks the server and the worker's permissions.
type serverInspector struct{ *inspection }

// inspect reports false if JetStream doesn't answer or is too old, because further checks are then impossible.
func (i serverInspector) inspect() bool {
	nc, batchBytes := i.nc, i.use.BatchBytes
	what := "server " + nc.ConnectedServerName()
	if _, err := i.js.AccountInfo(i.ctx); err != nil {
		i.reportSilence(what, err)
		return false
	}
	level, err := apiLevel(i.ctx, nc, i.l.API)
	if err != nil {
		i.reportSilence(what, err)
		return false
	}
	if found, advice := tooOld(nc.ConnectedServerVersion(), level, i.l); found != "" {
		i.say(finding.Error, what, found, advice)
		return false
	}
	found := fmt.Sprintf("version %s (%s or later is needed), max_payload %d bytes; unless sync_interval is \"always\" in the server's jetstream block it confirms "+
		"before it syncs to disk, so with one replica a power cut can lose what it confirmed last", nc.ConnectedServerVersion(), oldest(i.l), nc.MaxPayload())
	if nc.MaxPayload() > int64(batchBytes) {
		payloads := "payloads"
		if i.use.Frames.Framed {
			payloads = "records"
		}
		i.say(finding.Warning, what, found, fmt.Sprintf("%s over %d bytes go to the dead-letter subject; raise MILLRACE_BATCH_BYTES "+
			"to at least max_payload", payloads, batchBytes))
		return true
	}
	i.say(finding.OK, what, found, "")
	return true
}

// reportSilence reports that JetStream doesn't answer. A missing permission to send a request, or to receive its answer, also has this
// symptom.
func (i serverInspector) reportSilence(what string, err error) {
	absent := errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	if absent || !i.refused() {
		i.failed(what, fmt.Errorf("JetStream does not answer: %w", err), i.whyNoAnswer())
	}
	i.permissions()
}

// refused reports whether the server has refused a request for lack of a permission.
func (i serverInspector) refused() bool {
	return errors.Is(i.nc.LastError(), nats.ErrPermissionViolation)
}

// whyNoAnswer returns the advice for a JetStream that doesn't answer.
func (i serverInspector) whyNoAnswer() string {
	switch api := i.l.API; {
	case api.Domain != "":
		return fmt.Sprintf("set MILLRACE_NATS_JS_DOMAIN to the domain of the streams: no server that this one reaches answers for the JetStream domain %q", api.Domain)
	case api.Prefix != "":
		return fmt.Sprintf("set MILLRACE_NATS_JS_PREFIX to the prefix under which this account imports the JetStream API of the streams' account (docs/security.md): nobody answers on %s",
			api.Subject("INFO"))
	}
	return "enable JetStream on the server and for this account"
}

// permissions reports the requests that the server refused. A request without permission gets no answer.
func (i serverInspector) permissions() {
	if i.refused() {
		i.say(finding.Error, "permissions", i.nc.LastError().Error(), "grant it to the worker's user: docs/security.md lists the permissions that it needs")
	}
}

// Error codes of the server for temporary errors. nats-server lists all codes in server/errors.json.
const (
	codeNoPeers         = 10005 // too few servers of the cluster can store the stream, for example while the cluster starts
	codeNotLeader       = 10009
	codeStreamOffline   = 10118
	codeConsumerOffline = 10119
)

// codeUnavailable is the code of errors about JetStream itself. For example, JetStream isn't ready, isn't enabled, or has no
// resources.
const codeUnavailable = 503

// lost has the errors of requests without an answer.
var lost = []error{
	context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrStaleConnection,
	nats.ErrConnectionReconnecting, nats.ErrReconnectBufExceeded,
}

// Unavailable reports whether an error of a JetStream API request may be temporary. Such an error means that the server didn't
// answer or can't answer now. A request that the worker's user may not send gets no answer either.
func Unavailable(err error) bool {
	if slices.ContainsFunc(lost, func(e error) bool { return errors.Is(err, e) }) {
		return true
	}
	var refusal jetstream.JetStreamError
	if !errors.As(err, &refusal) || refusal.APIError() == nil {
		return false
	}
	switch refusal.APIError().ErrorCode {
	case codeNoPeers, codeNotLeader, codeStreamOffline, codeConsumerOffline:
		return true
	}
	return refusal.APIError().Code == codeUnavailable
}
