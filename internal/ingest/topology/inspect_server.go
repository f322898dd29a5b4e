package topology

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

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
