package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Level says how much a finding matters.
type Level int

// The levels. The worker does not start with an Error.
const (
	OK Level = iota
	Warning
	Error
)

func (l Level) String() string { return [...]string{"ok", "warning", "error"}[l] }

// Finding is one thing that was looked at.
type Finding struct {
	Level  Level
	What   string // "stream INGEST"
	Found  string // what it is like
	Advice string // what to do; empty for OK

	Missing bool // it is not there, and provisioning would create it
}

func (f Finding) String() string {
	s := f.What + ": " + f.Found
	if f.Advice != "" {
		s += ": " + f.Advice
	}
	return s
}

// Inspect looks at the server, the streams and the consumer as the worker is going to use them. inFlight is
// how many payloads the pipelines can hold at once, batchBytes what one batch takes.
func Inspect(ctx context.Context, nc *nats.Conn, o Options, inFlight, batchBytes int) []Finding {
	js, err := jetstream.New(nc)
	if err != nil {
		return []Finding{{Level: Error, What: "JetStream", Found: err.Error(), Advice: "report this as a bug"}}
	}
	i := &inspection{ctx: ctx, js: js, nc: nc, o: o, maxPayload: nc.MaxPayload(), cluster: nc.ConnectedClusterName()}
	if !i.server(nc, batchBytes) {
		return i.findings
	}
	i.inputStream()
	i.resultStream()
	i.deadLetters()
	if o.Exclusive {
		i.partitions(inFlight)
	} else {
		i.consumer(inFlight)
	}
	i.permissions()
	return i.findings
}

// permissions names what the server refused of what was asked: a question that may not be asked gets no answer.
func (i *inspection) permissions() {
	if err := i.nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		i.say(Error, "permissions", err.Error(), "allow it to the worker's user: docs/security.md lists what it needs")
	}
}

type inspection struct {
	ctx      context.Context
	js       jetstream.JetStream
	nc       *nats.Conn
	o        Options
	findings []Finding

	maxPayload int64  // of the server
	cluster    string // its name; empty for a server by itself
}

func (i *inspection) say(l Level, what, found, advice string) {
	i.findings = append(i.findings, Finding{Level: l, What: what, Found: found, Advice: advice})
}

// missing reports what provisioning would create.
func (i *inspection) missing(what, found string) {
	i.findings = append(i.findings, Finding{Level: Error, What: what, Found: found, Missing: true,
		Advice: "create it, or set MILLRACE_PROVISION=true to have it created"})
}

func (i *inspection) server(nc *nats.Conn, batchBytes int) bool {
	what := "server " + nc.ConnectedServerName()
	if _, err := i.js.AccountInfo(i.ctx); err != nil {
		i.say(Error, what, "JetStream does not answer: "+err.Error(),
			"enable JetStream on the server and for this account")
		return false
	}
	found := fmt.Sprintf("version %s, max_payload %d bytes; unless sync_interval is \"always\" in the server's jetstream block it confirms "+
		"before it syncs to disk, so with one replica a power cut can lose what it confirmed last", nc.ConnectedServerVersion(), nc.MaxPayload())
	if nc.MaxPayload() > int64(batchBytes) {
		i.say(Warning, what, found, fmt.Sprintf("payloads over %d bytes go to the dead-letter subject; raise MILLRACE_BATCH_BYTES "+
			"to at least max_payload", batchBytes))
		return true
	}
	i.say(OK, what, found, "")
	return true
}

// stream looks a stream up and reports it if it is not there.
func (i *inspection) stream(name, role string) (jetstream.StreamConfig, bool) {
	what := "stream " + name
	s, err := i.js.Stream(i.ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		i.missing(what, "not there ("+role+")")
		return jetstream.StreamConfig{}, false
	case err != nil:
		i.say(Error, what, err.Error(), "check the account's permissions on the JetStream API")
		return jetstream.StreamConfig{}, false
	}
	return s.CachedInfo().Config, true
}

func (i *inspection) inputStream() {
	c, ok := i.stream(i.o.Stream, "the input")
	if !ok {
		return
	}
	what, found := "stream "+c.Name, fmt.Sprintf("the input, subjects %v, %s storage, %d replicas", c.Subjects, c.Storage, c.Replicas)
	for _, filter := range i.o.Subjects {
		meets := func(subject string) bool { return covers(subject, filter) || covers(filter, subject) }
		if len(c.Subjects) > 0 && !slices.ContainsFunc(c.Subjects, meets) { // a mirror has none of its own
			i.say(Warning, what, fmt.Sprintf("stores nothing under %q, only %v", filter, c.Subjects), "add the subject to it, or set MILLRACE_SUBJECTS")
		}
	}
	i.durability(what, found, c)
}

func (i *inspection) resultStream() {
	c, ok := i.stream(i.o.ResultStream, "the results")
	if !ok {
		return
	}
	what, found := "stream "+c.Name, fmt.Sprintf("the results, subjects %v, %s storage, %d replicas", c.Subjects, c.Storage, c.Replicas)
	name, err := streamOf(i.ctx, i.js, i.o.ResultPrefix, i.o.Subjects)
	switch {
	case err != nil:
		i.sayStreamOf(what, err, "MILLRACE_RESULT_PREFIX")
	case name != c.Name:
		who := "no stream does"
		if name != "" {
			who = "stream " + name + " does"
		}
		i.say(Error, what, fmt.Sprintf("does not store %q (%s)", mappedFilters(i.o.ResultPrefix, i.o.Subjects), who),
			"add the subjects to it, or set MILLRACE_RESULT_PREFIX or MILLRACE_RESULT_STREAM")
	case c.NoAck:
		i.say(Error, what, "has no_ack set, so the server never confirms that a result is stored", "clear no_ack")
	default:
		i.durability(what, found, c)
		i.publishing(what)
		i.duplicates(what, c)
	}
}

// sayStreamOf reports an error of streamOf.
func (i *inspection) sayStreamOf(what string, err error, variable string) {
	advice := "check the account's permissions on the JetStream API"
	if partly := (*partlyStored)(nil); errors.As(err, &partly) {
		advice = "set " + variable + " to choose another prefix"
	}
	i.say(Error, what, err.Error(), advice)
}

func (i *inspection) deadLetters() {
	what := "dead letters " + i.o.DeadLetterPrefix + ".>"
	name, err := streamOf(i.ctx, i.js, i.o.DeadLetterPrefix, i.o.Subjects)
	switch {
	case err != nil:
		i.sayStreamOf(what, err, "MILLRACE_DEADLETTER_PREFIX")
	case name == "":
		i.missing(what, "no stream stores them, so payloads that cannot be processed would come again for ever")
	default:
		i.say(OK, what, "stored in stream "+name, "")
	}
}

func (i *inspection) consumer(inFlight int) {
	what := "consumer " + i.o.Consumer
	c, err := i.js.Consumer(i.ctx, i.o.Stream, i.o.Consumer)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return // said already
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		i.missing(what, "not there")
		return
	case err != nil:
		i.say(Error, what, err.Error(), "it must be a pull consumer, and the account must be allowed to read it")
		return
	}
	i.consumerSettings(what, c.CachedInfo().Config, inFlight)
}

func (i *inspection) consumerSettings(what string, c jetstream.ConsumerConfig, inFlight int) {
	found := fmt.Sprintf("ack wait %s, max ack pending %d, max deliver %d", c.AckWait, c.MaxAckPending, c.MaxDeliver)
	worst := OK
	say := func(l Level, found, advice string) { worst = max(worst, l); i.say(l, what, found, advice) }
	if c.AckPolicy != jetstream.AckExplicitPolicy {
		say(Error, fmt.Sprintf("ack policy %s", c.AckPolicy), "create it with explicit acknowledgement")
	}
	if c.Durable == "" {
		say(Warning, "not durable", "create it with a durable name, or its place is lost when it goes")
	}
	if c.MaxDeliver == 1 {
		say(Error, found, "with max deliver 1 a payload is lost with the first worker that dies; raise it or make it unlimited")
	} else if c.MaxDeliver > 0 {
		say(Warning, found, "a payload whose last delivery dies with a worker is never delivered again; make max deliver "+
			"unlimited and let MILLRACE_MAX_DELIVER count")
	}
	if c.MaxAckPending > 0 && c.MaxAckPending < inFlight {
		say(Warning, found, fmt.Sprintf("the pipelines can hold %d payloads; raise max ack pending or lower "+
			"MILLRACE_BATCH_PAYLOADS or MILLRACE_LANES, or they are never full", inFlight))
	}
	i.agreement(c, say)
	if c.HeadersOnly {
		say(Error, "headers only", "the payloads do not come with it, so every result would be that of an empty payload; create it without headers_only")
	}
	if limit := int(i.maxPayload); c.MaxRequestMaxBytes > 0 && c.MaxRequestMaxBytes < limit {
		say(Warning, fmt.Sprintf("max request max bytes %d, and the server takes messages of %d", c.MaxRequestMaxBytes, limit),
			"a message larger than that bound stops the consumer; raise or clear it")
	}
	filters := c.FilterSubjects
	if c.FilterSubject != "" {
		filters = []string{c.FilterSubject}
	}
	if len(filters) > 0 && !sameSubjects(filters, i.o.Subjects) {
		say(Warning, fmt.Sprintf("filters %v, and MILLRACE_SUBJECTS is %v", filters, i.o.Subjects),
			"the consumer's own filters hold; make them agree")
	}
	if worst == OK {
		i.say(OK, what, found, "")
	}
}

func sameSubjects(a, b []string) bool {
	x, y := slices.Clone(a), slices.Clone(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
