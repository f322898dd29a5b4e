package topology

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

// stream looks up a stream, and reports it if it doesn't exist.
func (i *inspection) stream(name, role string) (jetstream.StreamConfig, bool) {
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

func (i *inspection) inputStream() {
	c, ok := i.stream(i.l.Stream, "the input")
	if !ok {
		return
	}
	what, found := "stream "+c.Name, fmt.Sprintf("the input, subjects %v, %s storage, %d replicas", c.Subjects, c.Storage, c.Replicas)
	for _, filter := range i.l.Subjects {
		meets := func(subject string) bool { return Covers(subject, filter) || Covers(filter, subject) }
		if len(c.Subjects) > 0 && !slices.ContainsFunc(c.Subjects, meets) { // a mirror has no subjects
			i.say(finding.Warning, what, fmt.Sprintf("stores nothing under %q, only %v", filter, c.Subjects), "add the subject to it, or set MILLRACE_SUBJECTS")
		}
	}
	i.durability(what, found, c)
}

func (i *inspection) resultStream() {
	c, ok := i.stream(i.l.ResultStream, "the results")
	if !ok {
		return
	}
	what, found := "stream "+c.Name, fmt.Sprintf("the results, subjects %v, %s storage, %d replicas", c.Subjects, c.Storage, c.Replicas)
	name, err := streamOf(i.ctx, i.js, i.l.ResultPrefix, i.l.Subjects)
	switch {
	case err != nil:
		i.sayStreamOf(what, err, "MILLRACE_RESULT_PREFIX")
	case name != c.Name:
		who := "no stream does"
		if name != "" {
			who = "stream " + name + " does"
		}
		i.say(finding.Error, what, fmt.Sprintf("does not store %q (%s)", mappedFilters(i.l.ResultPrefix, i.l.Subjects), who),
			"add the subjects to it, or set MILLRACE_RESULT_PREFIX or MILLRACE_RESULT_STREAM")
	case c.NoAck:
		i.say(finding.Error, what, "has no_ack set, so the server never confirms that a result is stored", "clear no_ack")
	default:
		i.durability(what, found, c)
		i.discards(what, c)
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
	i.say(finding.Error, what, err.Error(), advice)
}
