package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/wildcard"
)

// streamInspector checks the input stream, and has the common checks of the result stream and the dead-letter stream.
type streamInspector struct{ *inspection }

// stream returns a stream's info, and reports a missing stream. wanted has the settings that provisioning would give the stream.
func (i streamInspector) stream(wanted jetstream.StreamConfig, role string) (*jetstream.StreamInfo, bool) {
	what := "stream " + wanted.Name
	s, err := i.js.Stream(i.ctx, wanted.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		i.reportMissing(what, "not there ("+role+")", addStream(i.withReplicas(wanted)))
		return nil, false
	case err != nil:
		i.failed(what, err, "check the account's permissions on the JetStream API")
		return nil, false
	}
	return s.CachedInfo(), true
}

func (i streamInspector) input() {
	info, ok := i.stream(inputSettings(i.l), "the input")
	if !ok {
		return
	}
	c := info.Config
	what, found := "stream "+c.Name, fmt.Sprintf("the input, subjects %v, %s storage, %d replicas, keeps %s", c.Subjects, c.Storage, c.Replicas, keeps(c))
	for _, filter := range i.l.Subjects {
		meets := func(subject string) bool { return wildcard.Covers(subject, filter) || wildcard.Covers(filter, subject) }
		if len(c.Subjects) > 0 && !slices.ContainsFunc(c.Subjects, meets) { // a mirror has no subjects
			i.say(finding.Warning, what, fmt.Sprintf("stores nothing under %q, only %v", filter, c.Subjects), "add the subject to it, or set MILLRACE_SUBJECTS")
		}
	}
	i.durability(what, found, c)
	settingsInspector(i).unread(what, c)
	i.bounds(what, inputRole, info, inputSettings(i.l), i.l.Kept.Inputs)
}

func (i streamInspector) sayStreamOf(what string, err error, variable string) {
	advice := "check the account's permissions on the JetStream API"
	if partly := (*partlyStored)(nil); errors.As(err, &partly) {
		advice = "set " + variable + " to choose another prefix"
	}
	i.failed(what, err, advice)
}

// durability reports a stream's storage, and warns if the stream could lose confirmed messages.
func (i streamInspector) durability(what, found string, c jetstream.StreamConfig) {
	switch {
	case c.Storage == jetstream.MemoryStorage:
		i.say(finding.Warning, what, found, "memory storage loses everything when the server restarts; use file storage")
	case c.Replicas < 2 && i.cluster != "":
		i.say(finding.Warning, what, found, "a single replica is lost with its server, and the cluster could keep more replicas; set num_replicas to 3 "+
			"(nats stream edit "+c.Name+" --replicas 3)")
	default:
		i.say(finding.OK, what, found, "")
	}
}

// discards warns about a stream that may delete unread messages. It ignores a maximum age that is the same as in b. It
// also ignores an age that differs from the user's choice, because the method bounds reports that.
func (i streamInspector) discards(what string, c jetstream.StreamConfig, b Bounds) {
	asked := c
	if b.AskedAge || asked.MaxAge == b.MaxAge {
		asked.MaxAge = 0
	}
	if d := findDrops(asked); len(d.limits) > 0 {
		found, advice := d.explain(c)
		i.say(finding.Warning, what, found, advice)
	}
}
