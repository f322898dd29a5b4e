package topology

// This file inspects the three streams. A stream is compared with its plan. Rows of the plan's table that concern the same risk make one
// finding. The risks are limits that delete messages, and differences from the user's settings.

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/wildcard"
)

// stream is an existing stream that is inspected.
type stream struct {
	*inspection
	plan
	what   string // name of the stream in findings
	opened jetstream.Stream
	have   jetstream.StreamConfig
	state  jetstream.StreamState
}

func (s *stream) ok(found string) { s.inspection.ok(s.what, found) }

func (s *stream) warn(found, advice string) { s.inspection.warn(s.what, found, advice) }

// open returns the stream with the name of the plan. It returns nil after it has reported why the stream can't be inspected.
func (i *inspection) open(what string, p plan) *stream {
	s, err := i.js.Stream(i.ctx, p.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		i.reportMissing("stream "+p.Name, "not there ("+p.role+")", i.addPlanned(p))
		return nil
	case err != nil:
		i.failed("stream "+p.Name, err, permission)
		return nil
	}
	return &stream{i, p, what, s, s.CachedInfo().Config, s.CachedInfo().State}
}

// addPlanned returns the command that creates a planned stream with the number of replicas that provisioning would try first.
func (i *inspection) addPlanned(p plan) string {
	if p.Replicas == 0 && i.cluster != "" {
		p.Replicas = clusterReplicas
	}
	return addStream(p.StreamConfig)
}

func (i *inspection) inputs() {
	s := i.open("stream "+i.l.Stream, i.l.inputPlan())
	if s == nil {
		return
	}
	i.input = s.opened.CachedInfo()
	stored := s.have.Subjects
	for _, filter := range i.l.Subjects {
		meets := func(subject string) bool { return wildcard.Overlap(subject, filter) }
		if len(stored) > 0 && !slices.ContainsFunc(stored, meets) { // a mirror has no subjects
			i.warn(s.what, fmt.Sprintf("stores nothing under %q, only %v", filter, stored), "add the subject to it, or set MILLRACE_SUBJECTS")
		}
	}
	s.durability(s.description())
	s.deletions()
	s.limits()
	if i.l.Exclusive {
		s.removals()
	}
}

func (i *inspection) results() {
	s := i.open("stream "+i.l.ResultStream, i.l.resultPlan(i.version))
	if s == nil {
		return
	}
	name, err := streamOf(i.ctx, i.js, i.l.ResultPrefix, i.l.Subjects)
	switch {
	case err != nil:
		i.reportStreamOf(s.what, err, "MILLRACE_RESULT_PREFIX")
	case name != s.have.Name:
		who := "no stream does"
		if name != "" {
			who = "stream " + name + " does"
		}
		i.say(finding.Error, s.what, fmt.Sprintf("does not store %q (%s)", mappedFilters(i.l.ResultPrefix, i.l.Subjects), who),
			"add the subjects to it, or set MILLRACE_RESULT_PREFIX or MILLRACE_RESULT_STREAM")
	case s.stores():
		s.durability(s.description())
		s.sizes(i.limitOfResults())
		s.deletions()
		s.limits()
		s.stateLog()
		if !s.exactlyOnce(i.l.CommitsOf) {
			s.publishing()
			s.duplicates()
		}
	}
}

func (i *inspection) deadLetters() {
	what, p := "dead letters "+i.l.DeadLetterPrefix+".>", i.l.deadLetterPlan(i.version)
	name, err := streamOf(i.ctx, i.js, i.l.DeadLetterPrefix, i.l.Subjects)
	switch {
	case err != nil:
		i.reportStreamOf(what, err, "MILLRACE_DEADLETTER_PREFIX")
		return
	case name == "":
		i.reportMissing(what, "no stream stores them, so payloads that cannot be processed would be redelivered forever", i.addPlanned(p))
		return
	}
	p.Name = name
	s := i.open(what, p)
	switch {
	case s == nil:
	case name == i.l.ResultStream: // results inspects its other settings
		i.warn(what, "stored in the result stream "+name+", where every reader of results gets them too", s.howToMove())
		s.exactlyOnce(i.l.LetterCommitsOf)
	case s.stores():
		s.durability(fmt.Sprintf("%sstored in stream %s, %s", s.markers(), name, s.storage()))
		s.deletions()
		s.limits()
		s.exactlyOnce(i.l.LetterCommitsOf)
	}
}

func (i *inspection) reportStreamOf(what string, err error, variable string) {
	advice := permission
	if partly := (*partlyStored)(nil); errors.As(err, &partly) {
		advice = "set " + variable + " to choose another prefix"
	}
	i.failed(what, err, advice)
}

func (s *stream) description() string {
	return fmt.Sprintf("%s, subjects %v, %s", s.role, s.have.Subjects, s.storage())
}

func (s *stream) storage() string {
	return fmt.Sprintf("%s storage, %d replicas, keeps %s", s.have.Storage, s.have.Replicas, keeps(s.have))
}

// durability reports a stream's storage, and warns if the stream could lose confirmed messages.
func (s *stream) durability(found string) {
	want := s.have
	want.Replicas = clusterReplicas
	switch {
	case s.have.Storage == jetstream.MemoryStorage:
		s.warn(found, "memory storage loses everything when the server restarts; use file storage")
	case s.have.Replicas < 2 && s.cluster != "":
		s.warn(found, "a single replica is lost with its server, and the cluster could keep more replicas; set num_replicas to 3 "+
			"("+editStream(want, "num_replicas")+")")
	default:
		s.ok(found)
	}
}

// stores reports settings that keep a stream from storing the worker's messages. It returns false if the stream can store no message.
func (s *stream) stores() bool {
	c := s.have
	const elsewhere = "set another stream, or delete it and set MILLRACE_PROVISION=true"
	return s.report(s.what, []problem{
		{c.NoAck, finding.Error, "has no_ack set, so the server never confirms that " + s.message + " is stored",
			"clear no_ack (" + editStream(c, "no_ack") + ")"},
		{c.Sealed, finding.Error, "is sealed: the server takes no messages for it any more, and can't unseal it", elsewhere},
		{c.AllowMsgCounter, finding.Error, "counts (allow_msg_counter): the server refuses every message that is no counter", elsewhere},
		{c.Discard == jetstream.DiscardNew && c.DiscardNewPerSubject && c.MaxMsgsPerSubject > 0, finding.Warning,
			fmt.Sprintf("refuses messages on a subject that has %d (discard_new_per_subject): the worker then waits until somebody removes "+
				"some", c.MaxMsgsPerSubject),
			"lift the limit (" + editStream(c, "max_msgs_per_subject", "discard_new_per_subject") + ")"},
		{c.SubjectTransform != nil, finding.Warning, fmt.Sprintf("maps subjects (%s): %s is stored on another subject, where readers with the "+
			"documented filters don't find it", transformText(c.SubjectTransform), s.message),
			"remove the transform, or have readers filter by the subjects as they are stored"},
	}) != finding.Error
}

// sizes warns if the result of one payload may exceed maximum, the size limit of messages.
func (s *stream) sizes(maximum limit) {
	if need := int64(s.use.Frames.Result + resultHeaders); maximum.bytes < need {
		s.warn(fmt.Sprintf("a result with its headers may have %d bytes, and %s takes messages of %d: payloads with larger results go to the "+
			"dead-letter subject (too_large)", need, maximum.of, maximum.bytes),
			maximum.raise+", or use MILLRACE_RESULT_FORMAT=binary or smaller operators")
	}
}

// deletions warns about a stream that may delete unread messages. It ignores a planned maximum age. It also ignores an age that
// differs from the user's choice, because limits reports that.
func (s *stream) deletions() {
	c := s.have
	if s.bounds.AskedAge || c.MaxAge == s.bounds.MaxAge {
		c.MaxAge = 0
	}
	found, flags := findDrops(c)
	if len(found) == 0 {
		return
	}
	discard := "old"
	if c.Discard == jetstream.DiscardNew {
		discard = "new"
	}
	advice := "messages over a limit are deleted, read or not. Unless that's meant, lift the limits (nats stream edit " + c.Name + flags + ")"
	if c.Discard == jetstream.DiscardOld && max(c.MaxMsgs, c.MaxBytes) > 0 {
		advice += ", or have the server refuse what goes over max_msgs and max_bytes, so that the worker waits for room (" +
			editStream(c, "discard") + ")"
	}
	s.warn(s.drops+": "+strings.Join(found, ", ")+", discard "+discard, advice)
}

// findDrops returns the limits at which the server deletes the oldest message instead of refusing the newest, and the flags that
// remove them. It ignores retention, because the server applies limits under interest and work-queue retention too.
func findDrops(c jetstream.StreamConfig) (found []string, flags string) {
	for _, row := range (plan{}).table(c, 0) {
		if row.drops != "" {
			found, flags = append(found, row.drops), flags+row.lift
		}
	}
	return found, flags
}

// removals warns about settings with which the server removes single messages of the input stream. The removal of an unacknowledged
// message acknowledges all earlier messages of its partition.
func (s *stream) removals() {
	var found []string
	for _, row := range s.table(s.have, 0) {
		if row.removes != "" {
			found = append(found, row.removes)
		}
	}
	if len(found) > 0 {
		s.warn("can remove single messages: "+strings.Join(found, ", "), "with exclusive delivery the server then counts "+
			"earlier messages of the partition as acknowledged, and they are lost if their worker dies at that time; use a stream without them, "+
			"or MILLRACE_DELIVERY=shared")
	}
}

const (
	// nearlyFull is the fill level, in tenths of max_bytes, from which limits warns.
	nearlyFull = 8

	// suggestedBytes is the advised max_bytes for an unbounded stream if the settings have no max_bytes.
	suggestedBytes = 4 << 30
)

// limits warns about a stream that will soon refuse messages, or that can grow without a limit. It also warns about differences from
// the user's settings for new streams.
func (s *stream) limits() {
	c, holds := s.have, int64(s.state.Bytes)
	if c.Discard == jetstream.DiscardNew && c.MaxBytes > 0 && holds >= c.MaxBytes/10*nearlyFull {
		want := c
		want.MaxBytes = room(holds, c.MaxBytes)
		s.warn(fmt.Sprintf("holds %d%% of max_bytes %s; when it is full, %s", holds*100/c.MaxBytes, sizeFlag(c.MaxBytes), s.full),
			"process or remove what it holds, or raise the limit ("+editStream(want, "max_bytes")+")")
	}
	var found []string
	var changes []setting
	changeable := false
	for _, change := range s.table(c, holds) {
		if change.differs != "" {
			found, changes = append(found, change.differs), append(changes, change)
			changeable = changeable || !change.fixed
		}
	}
	if c.MaxAge <= 0 && c.MaxBytes <= 0 && c.MaxMsgs <= 0 {
		found = append([]string{grows(c)}, found...)
		if !changeable {
			changes = append(changes, s.suggested()...)
		}
	}
	if len(found) > 0 {
		s.warn(strings.Join(found, "; "), changeAdvice(c.Name, changes))
	}
}

// grows returns a text about how an unbounded stream can fill the disk.
func grows(c jetstream.StreamConfig) string {
	if c.Retention == jetstream.LimitsPolicy {
		return "has no bound: it keeps every message, read or not, until the disk is full"
	}
	return "has no bound: while no worker runs, its backlog can fill the disk"
}

// suggested returns the changes that bound an unbounded stream. An input stream gets no maximum age, because inputs must not be
// deleted before they are processed.
func (s *stream) suggested() (changes []setting) {
	p, holds := s.plan, int64(s.state.Bytes)
	if p.MaxBytes == 0 {
		p.MaxBytes = suggestedBytes
	}
	p.MaxBytes = room(holds, p.MaxBytes)
	table := p.table(s.have, holds)
	switch {
	case s.have.Retention != jetstream.LimitsPolicy:
	case s.have.Name == s.l.Stream:
		changes = append(changes, setting{note: "processed inputs stay in it and count: docs/streams.md says how to let them go"})
	case p.MaxAge > 0:
		changes = append(changes, row(table, "max_age"))
	}
	bytes := row(table, "max_bytes")
	bytes.note = "with discard new, a stream that is full refuses messages"
	return append(changes, bytes)
}

// room returns the advised max_bytes for a stream with the present size holds. It is twice holds, rounded up to whole
// GiB, but not less than minimum.
func room(holds, minimum int64) int64 {
	const gib = 1 << 30
	return max(minimum, (2*holds+gib-1)/gib*gib)
}

// changeAdvice returns advice on changing settings of an existing stream to their planned values.
func changeAdvice(name string, changes []setting) string {
	flags, advice := "", ""
	for _, change := range changes {
		if change.note != "" {
			advice += change.note + "; "
		}
		if !change.fixed {
			flags += change.flags
		}
	}
	return advice + when(flags != "", "change it (nats stream edit %s%s); ", name, flags) + "the worker changes no stream that exists"
}

// howToMove returns the commands that give dead letters their own stream. Between the two commands no stream has the subjects of
// dead letters, because two streams can't share subjects. A payload that is given up in between is redelivered. With --force the
// first command has no prompt, so both commands can be pasted at once.
func (s *stream) howToMove() string {
	results, apart, dead := s.have, s.l.deadLetterPlan(s.version), mappedSubjects(s.l.DeadLetterPrefix)
	keep := slices.DeleteFunc(slices.Clone(results.Subjects), func(s string) bool {
		return slices.ContainsFunc(dead, func(d string) bool { return wildcard.Covers(s, d) || wildcard.Covers(d, s) })
	})
	if !allCovered([]string{s.l.ResultPrefix + ".>"}, keep) {
		keep = append(keep, mappedSubjects(s.l.ResultPrefix)...) // one wildcard covered both
		if s.l.wantsMarkers() {
			keep = append(keep, CommitSubjects(s.l.CommitPrefix, results.Name))
		}
		slices.Sort(keep)
		keep = slices.Compact(keep)
	}
	apart.Duplicates = results.Duplicates
	if apart.MaxAge > 0 {
		apart.Duplicates = min(apart.Duplicates, apart.MaxAge) // the server accepts no longer window
	}
	results.Subjects = keep
	return fmt.Sprintf("give them their own stream: %s --force, then %s. Dead letters that are already stored stay in %s",
		editStream(results, "subjects"), s.addPlanned(apart), results.Name)
}
