package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

// streamInspector looks at streams: at the input, and at what those of results and dead letters have in common.
type streamInspector struct{ *inspection }

// stream looks a stream up and reports it if it is not there.
func (i streamInspector) stream(name, role string) (jetstream.StreamConfig, bool) {
	what := "stream " + name
	s, err := i.js.Stream(i.ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		i.missing(what, "not there ("+role+")")
		return jetstream.StreamConfig{}, false
	case err != nil:
		i.say(finding.Error, what, err.Error(), "check the account's permissions on the JetStream API")
		return jetstream.StreamConfig{}, false
	}
	return s.CachedInfo().Config, true
}

// input looks at the input stream.
func (i streamInspector) input() {
	c, ok := i.stream(i.l.Stream, "the input")
	if !ok {
		return
	}
	what, found := "stream "+c.Name, fmt.Sprintf("the input, subjects %v, %s storage, %d replicas", c.Subjects, c.Storage, c.Replicas)
	for _, filter := range i.l.Subjects {
		meets := func(subject string) bool { return Covers(subject, filter) || Covers(filter, subject) }
		if len(c.Subjects) > 0 && !slices.ContainsFunc(c.Subjects, meets) { // a mirror has none of its own
			i.say(finding.Warning, what, fmt.Sprintf("stores nothing under %q, only %v", filter, c.Subjects), "add the subject to it, or set MILLRACE_SUBJECTS")
		}
	}
	i.durability(what, found, c)
}

// sayStreamOf reports an error of streamOf.
func (i streamInspector) sayStreamOf(what string, err error, variable string) {
	advice := "check the account's permissions on the JetStream API"
	if partly := (*partlyStored)(nil); errors.As(err, &partly) {
		advice = "set " + variable + " to choose another prefix"
	}
	i.say(finding.Error, what, err.Error(), advice)
}

// durability says what it takes to lose what a stream has confirmed.
func (i streamInspector) durability(what, found string, c jetstream.StreamConfig) {
	switch {
	case c.Storage == jetstream.MemoryStorage:
		i.say(finding.Warning, what, found, "memory storage loses everything when the server restarts; use file storage")
	case c.Replicas < 2 && i.cluster != "":
		i.say(finding.Warning, what, found, "one replica is lost with its server, and the cluster could keep more; set num_replicas to 3 "+
			"(nats stream edit "+c.Name+" --replicas 3)")
	default:
		i.say(finding.OK, what, found, "")
	}
}

// discards warns of a stream that drops what it holds before anybody has read it.
func (i streamInspector) discards(what string, c jetstream.StreamConfig) {
	if d := findDrops(c); len(d.limits) > 0 {
		found, advice := d.explain(c)
		i.say(finding.Warning, what, found, advice)
	}
}
