package topology

// This file inspects the server and collects the findings. Each kind of asset has its own file: inspect_streams.go and consumers.go.
// These files list possible problems in tables, and report the rows that apply.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/jsapi"
)

// Inspect checks the server, the streams and the consumers for the worker's use u.
func Inspect(ctx context.Context, nc *nats.Conn, l Topology, u Use) []finding.Finding {
	js, err := l.API.New(nc)
	if err != nil {
		return []finding.Finding{{Level: finding.Error, What: "JetStream", Found: err.Error(), Advice: "report this as a bug"}}
	}
	i := &inspection{ctx: ctx, js: js, nc: nc, l: l, use: u, maxPayload: nc.MaxPayload(), cluster: nc.ConnectedClusterName(),
		version: nc.ConnectedServerVersion()}
	if !i.server() {
		return i.findings
	}
	if !u.Frames.none() {
		i.frames(i.limitOfResults())
	}
	i.inputs()
	i.results()
	i.deadLetters()
	i.consumers()
	i.permissions()
	i.findings = append(i.findings, InspectStates(l, u.States)...)
	i.processed() // runs after permissions, so its refused requests are only warnings
	for _, check := range i.later {
		check()
	}
	return i.findings
}

// ExplainCommands appends a finding about the installation of the nats command if one of the findings advises that command.
func ExplainCommands(findings []finding.Finding) []finding.Finding {
	for _, f := range findings {
		if strings.Contains(f.Advice, "nats stream ") || strings.Contains(f.Advice, "nats consumer ") {
			return append(findings, finding.Finding{What: "the nats command", Found: "it runs the advice above; it is at " +
				"https://github.com/nats-io/natscli/releases, or install it with: go install github.com/nats-io/natscli/nats@latest (0.4 or later; " +
				"--server, --creds, --js-domain and --js-api-prefix say where and as whom)"})
		}
	}
	return findings
}

// inspection has the worker's requirements for the server, and the findings so far.
type inspection struct {
	ctx      context.Context
	js       jetstream.JetStream
	nc       *nats.Conn
	l        Topology
	use      Use
	findings []finding.Finding

	input      *jetstream.StreamInfo // the input stream; nil if it can't be read, which is already reported
	later      []func()              // checks that run after permissions
	maxPayload int64                 // the server's max_payload in bytes
	cluster    string                // name of the server's cluster; empty for a single server
	version    string                // version of the server
}

// problem is a row of a table of possible problems.
type problem struct {
	wrong         bool
	level         finding.Level
	found, advice string
}

// report adds a finding for each row whose problem exists, and returns the worst level.
func (i *inspection) report(what string, table []problem) (worst finding.Level) {
	for _, p := range table {
		if p.wrong {
			i.say(p.level, what, p.found, p.advice)
			worst = max(worst, p.level)
		}
	}
	return worst
}

func (i *inspection) ok(what, found string) { i.say(finding.OK, what, found, "") }

func (i *inspection) warn(what, found, advice string) { i.say(finding.Warning, what, found, advice) }

func (i *inspection) say(l finding.Level, what, found, advice string) {
	i.findings = append(i.findings, finding.Finding{Level: l, What: what, Found: found, Advice: advice})
}

// reportMissing reports a missing stream or consumer that provisioning would create, and the command that creates
// it.
func (i *inspection) reportMissing(what, found, command string) {
	i.findings = append(i.findings, finding.Finding{Level: finding.Error, What: what, Found: found, Missing: true,
		Advice: "create it (" + command + "), or set MILLRACE_PROVISION=true to have it created"})
}

// permission is the advice on a request of the JetStream API that the server refused.
const permission = "check the account's permissions on the JetStream API"

func (i *inspection) failed(what string, err error, advice string) {
	i.findings = append(i.findings, finding.Finding{Level: finding.Error, What: what, Found: err.Error(), Advice: advice,
		Unanswered: Unavailable(err)})
}

// server reports false if JetStream doesn't answer or is too old, because further checks are then impossible.
func (i *inspection) server() bool {
	what := "server " + i.nc.ConnectedServerName()
	account, err := i.js.AccountInfo(i.ctx)
	if err != nil {
		i.reportSilence(what, err)
		return false
	}
	if found, advice := tooOld(i.version, account.API.Level, i.l); found != "" {
		i.say(finding.Error, what, found, advice)
		return false
	}
	needed, payloads := OldestShared, "payloads"
	if i.l.Exclusive {
		needed = OldestExclusive
	}
	if i.use.Frames.Framed {
		payloads = "records"
	}
	found := fmt.Sprintf("version %s (%s or later is needed), max_payload %d bytes; unless sync_interval is \"always\" in the server's "+
		"jetstream block it confirms before it syncs to disk, so with one replica a power cut can lose what it confirmed last",
		i.version, needed, i.maxPayload)
	if i.maxPayload > int64(i.use.BatchBytes) {
		i.warn(what, found, fmt.Sprintf("%s over %d bytes go to the dead-letter subject; raise MILLRACE_BATCH_BYTES to at least "+
			"max_payload", payloads, i.use.BatchBytes))
	} else {
		i.ok(what, found)
	}
	return true
}

// reportSilence reports that JetStream doesn't answer. A missing permission to send a request, or to receive its answer, also has this
// symptom.
func (i *inspection) reportSilence(what string, err error) {
	absent := errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	if absent || !i.refused() {
		i.failed(what, fmt.Errorf("JetStream does not answer: %w", err), i.whyNoAnswer())
	}
	i.permissions()
}

// whyNoAnswer returns the advice for a JetStream that doesn't answer.
func (i *inspection) whyNoAnswer() string {
	switch api := i.l.API; {
	case api.Domain != "":
		return fmt.Sprintf("set MILLRACE_NATS_JS_DOMAIN to the domain of the streams: no server that this one reaches answers for the "+
			"JetStream domain %q", api.Domain)
	case api.Prefix != "":
		return "set MILLRACE_NATS_JS_PREFIX to the prefix under which this account imports the JetStream API of the streams' account " +
			"(docs/security.md): nobody answers on " + api.Subject("INFO")
	}
	return "enable JetStream on the server and for this account"
}

// refused reports whether the server has refused a request for lack of a permission.
func (i *inspection) refused() bool { return errors.Is(i.nc.LastError(), nats.ErrPermissionViolation) }

// permissions reports the requests that the server refused. A request without permission gets no answer.
func (i *inspection) permissions() {
	if i.refused() {
		i.say(finding.Error, "permissions", i.nc.LastError().Error(),
			"grant it to the worker's user: docs/security.md lists the permissions that it needs")
	}
}

// The oldest releases of nats-server that the delivery modes support. `.ci/run oldest` runs both modes on the first versions of
// these releases.
var (
	// OldestShared is the first release with several filters per consumer, and with metadata of streams and consumers.
	OldestShared = jsapi.Release{Major: 2, Minor: 10}

	// OldestExclusive is the first release with both pinned consumers and requests that reset consumers.
	OldestExclusive = jsapi.Release{Major: 2, Minor: 14}
)

// levelExclusive is the JetStream API level of OldestExclusive.
const levelExclusive = 4

// InspectStates compares the memory of the states of all partitions with the worker's memory for states. It needs no server. It returns no
// finding without a stateful operator, or if a size is unknown.
func InspectStates(l Topology, s States) []finding.Finding {
	if l.Stateful == "" || s.Partition == 0 || s.Memory == 0 {
		return nil
	}
	partitions, fit := int64(l.Partitions), s.Memory/s.Partition*s.Devices
	f := finding.Finding{What: "states of operator " + l.Stateful, Found: fmt.Sprintf("the state of a partition takes %d MiB, %d MiB for all "+
		"%d; a worker has %d MiB for states%s", ceilMiB(s.Partition), ceilMiB(s.Partition*partitions), partitions, s.Memory>>20,
		when(s.Devices > 1, " on each of %d devices", s.Devices))}
	const less = ", or lower MILLRACE_STATE_RECORDS"
	switch {
	case fit == 0:
		f.Level, f.Advice = finding.Error, fmt.Sprintf("set MILLRACE_STATE_BYTES to at least %dMiB%s", ceilMiB(s.Partition), less)
	case fit < partitions:
		f.Level, f.Found = finding.Warning, fmt.Sprintf("%s, which is enough for %d partitions", f.Found, fit)
		f.Advice = fmt.Sprintf("run at least %d workers, because nobody processes a partition whose state fits nowhere; or raise "+
			"MILLRACE_STATE_BYTES%s", (partitions+fit-1)/fit, less)
	}
	return []finding.Finding{f}
}

// ceilMiB converts bytes to MiB and rounds up.
func ceilMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// tooOld returns the problem and the advice if the server is too old, and otherwise empty texts. version is the version of the
// connected server. If JetStream is in a domain or another account, tooOld checks level instead, the level of its API. Servers
// before 2.11 have no level.
func tooOld(version string, level int, l Topology) (found, advice string) {
	shared := ", or set MILLRACE_DELIVERY=shared, which needs " + OldestShared.String()
	switch elsewhere := l.API != (jsapi.API{}); {
	case elsewhere && l.Exclusive && level < levelExclusive:
		return fmt.Sprintf("JetStream elsewhere has level %d of its API, and exclusive delivery needs level %d, of nats-server %s",
			level, levelExclusive, OldestExclusive), "upgrade its servers" + shared
	case elsewhere:
	case !OldestShared.In(version):
		return "version " + version + ", and Millrace needs nats-server " + OldestShared.String(), "upgrade the server"
	case l.Exclusive && !OldestExclusive.In(version):
		return "version " + version + ", and exclusive delivery needs nats-server " + OldestExclusive.String(), "upgrade the server" + shared
	}
	return "", ""
}

// limit is the size limit of a message.
type limit struct {
	bytes int64
	of    string // the server or stream with the limit
	raise string // advice on raising the limit
}

// limitOfResults returns the size limit of messages with results. It is the smaller limit of the result stream and the server, or
// the server's limit if the stream's is unknown.
func (i *inspection) limitOfResults() limit {
	if s, err := i.js.Stream(i.ctx, i.l.ResultStream); err == nil {
		if maximum := int64(s.CachedInfo().Config.MaxMsgSize); maximum > 0 && maximum < i.maxPayload {
			return limit{maximum, "stream " + i.l.ResultStream, "raise max_msg_size of stream " + i.l.ResultStream}
		}
	}
	return limitOfServer(i.maxPayload)
}

func limitOfServer(maxPayload int64) limit {
	return limit{maxPayload, "the server", "raise the server's max_payload"}
}

// resultHeaders is the assumed size of a result's headers in bytes.
const resultHeaders = 1024

// frames compares the limits of frames with the size of a batch, and with the size limit of messages and of results.
func (i *inspection) frames(results limit) {
	f, records := i.use.Frames, i.use.Frames.fit(int(results.bytes)-resultHeaders)
	if i.report("frames", []problem{
		{int64(f.Bytes) < i.maxPayload, finding.Warning,
			fmt.Sprintf("the server takes messages of %d bytes, and MILLRACE_FRAME_BYTES is %d", i.maxPayload, f.Bytes),
			fmt.Sprintf("larger ones that are framed or compressed go to the dead-letter subject; raise MILLRACE_FRAME_BYTES to at least %d",
				i.maxPayload)},
		{f.Framed && records == 0, finding.Warning,
			fmt.Sprintf("the result of one record may have %d bytes, and %s takes messages of %d", f.Result, results.of, results.bytes),
			"a record with a larger result goes to the dead-letter subject; " + results.raise +
				", or use MILLRACE_RESULT_FORMAT=binary or smaller operators"},
	}) != finding.OK {
		return
	}
	found := when(f.Framed, "up to %d records and %d bytes per message; ", f.Records, f.Bytes) +
		fmt.Sprintf("a record may have up to %d bytes (MILLRACE_BATCH_BYTES)", min(i.use.BatchBytes, f.Bytes)) +
		when(f.Framed && records < f.Records, "; the result of more than about %d records comes in parts, because %s takes messages of %d bytes",
			records, results.of, results.bytes)
	i.ok("frames", found)
}

// Error codes of the server for temporary errors. nats-server lists all codes in server/errors.json.
const (
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
	case errNoPeers, codeNotLeader, codeStreamOffline, codeConsumerOffline: // errNoPeers also while the cluster starts
		return true
	}
	return refusal.APIError().Code == codeUnavailable
}
