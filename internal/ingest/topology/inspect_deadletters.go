package topology

import (
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/wildcard"
)

type deadLetterInspector struct{ streamInspector }

func (i deadLetterInspector) inspect() {
	what := "dead letters " + i.l.DeadLetterPrefix + ".>"
	name, err := streamOf(i.ctx, i.js, i.l.DeadLetterPrefix, i.l.Subjects)
	switch {
	case err != nil:
		i.sayStreamOf(what, err, "MILLRACE_DEADLETTER_PREFIX")
		return
	case name == "":
		i.reportMissing(what, "no stream stores them, so payloads that cannot be processed would be redelivered forever", addStream(i.withReplicas(deadLetterSettings(i.js, i.l))))
		return
	}
	wanted := deadLetterSettings(i.js, i.l)
	wanted.Name = name
	info, ok := i.stream(wanted, "the dead letters")
	if !ok {
		return
	}
	c := info.Config
	switch {
	case name == i.l.ResultStream: // resultInspector checks its other settings
		i.say(finding.Warning, what, "stored in the result stream "+name+", where every reader of results gets them too", i.howToMove(c))
		i.exactlyOnce(what, c, i.l.LetterCommitsOf)
	case settingsInspector{i.inspection}.refusals(what, "a dead letter", c):
		i.durability(what, fmt.Sprintf("%sstored in stream %s, %s storage, %d replicas, keeps %s", i.markers(info), name, c.Storage, c.Replicas, keeps(c)), c)
		i.discards(what, c, i.l.Kept.DeadLetters)
		i.bounds(what, deadLetterRole, info, wanted, i.l.Kept.DeadLetters)
		i.exactlyOnce(what, c, i.l.LetterCommitsOf)
	}
}

// markers returns a text with the number of commit markers in a stream, because they aren't dead letters. The text is empty for a
// stream without messages, or if the server doesn't count the markers.
func (i deadLetterInspector) markers(info *jetstream.StreamInfo) string {
	if info.State.Msgs == 0 || i.l.CommitPrefix == "" {
		return ""
	}
	s, err := i.js.Stream(i.ctx, info.Config.Name)
	if err != nil {
		return ""
	}
	counted, err := s.Info(i.ctx, jetstream.WithSubjectFilter(CommitSubjects(i.l.CommitPrefix, info.Config.Name)))
	if err != nil {
		return ""
	}
	markers := uint64(0)
	for _, n := range counted.State.Subjects {
		markers += n
	}
	return fmt.Sprintf("%d of its %d messages are commit markers, which are no dead letters; ", markers, counted.State.Msgs)
}

// howToMove returns the commands that give dead letters their own stream. Between the two commands no stream has the subjects of
// dead letters, because two streams can't share subjects. A payload that is given up in between is redelivered. With --force the
// first command has no prompt, so both commands can be pasted at once.
func (i deadLetterInspector) howToMove(results jetstream.StreamConfig) string {
	dead := mappedSubjects(i.l.DeadLetterPrefix)
	keep := slices.DeleteFunc(slices.Clone(results.Subjects), func(s string) bool {
		return slices.ContainsFunc(dead, func(d string) bool { return wildcard.Covers(s, d) || wildcard.Covers(d, s) })
	})
	if !slices.ContainsFunc(keep, func(s string) bool { return wildcard.Covers(s, i.l.ResultPrefix+".>") }) {
		keep = append(keep, mappedSubjects(i.l.ResultPrefix)...) // one wildcard covered both
		if i.l.wantsMarkers() {
			keep = append(keep, CommitSubjects(i.l.CommitPrefix, results.Name))
		}
		slices.Sort(keep)
		keep = slices.Compact(keep)
	}
	apart := i.withReplicas(deadLetterSettings(i.js, i.l))
	apart.Name, apart.Duplicates = results.Name+deadLetterSuffix, results.Duplicates
	if apart.MaxAge > 0 {
		apart.Duplicates = min(apart.Duplicates, apart.MaxAge) // the server accepts no longer window
	}
	return fmt.Sprintf("give them their own stream: nats stream edit %s%s --force, then %s. Dead letters that are already stored stay in %s",
		results.Name, subjectFlags(keep), addStream(apart), results.Name)
}
