package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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

// drops has the limits that make a stream delete unread messages, and the flags of `nats stream edit` that remove
// these limits.
type drops struct{ limits, flags []string }

func (d *drops) add(flag, format string, args ...any) {
	d.limits = append(d.limits, fmt.Sprintf(format, args...))
	d.flags = append(d.flags, flag)
}

// findDrops finds limits at which the server deletes the oldest message instead of refusing the newest. It ignores
// retention, because the server applies limits under interest and work-queue retention too.
func findDrops(c jetstream.StreamConfig) (d drops) {
	if c.Discard == jetstream.DiscardOld {
		if c.MaxMsgs > 0 {
			d.add("--max-msgs=-1", "max_msgs %d", c.MaxMsgs)
		}
		if c.MaxBytes > 0 {
			d.add("--max-bytes=-1", "max_bytes %d", c.MaxBytes)
		}
	}
	// Only discard_new_per_subject makes the server refuse messages over a subject's limit. It requires discard new.
	if c.MaxMsgsPerSubject > 0 && !c.DiscardNewPerSubject {
		d.add("--max-msgs-per-subject=-1", "max_msgs_per_subject %d", c.MaxMsgsPerSubject)
	}
	if c.MaxAge > 0 { // max_age deletes messages with either value of discard
		d.add("--max-age=0s", "max_age %s", c.MaxAge)
	}
	return d
}

// explain describes the messages that the stream c drops, and the commands that make c keep them.
func (d *drops) explain(c jetstream.StreamConfig) (found, advice string) {
	advice = fmt.Sprintf("messages over a limit are deleted, read or not. Unless that's meant, lift the limits (nats stream edit %s %s)",
		c.Name, strings.Join(d.flags, " "))
	if c.Discard == jetstream.DiscardOld && max(c.MaxMsgs, c.MaxBytes) > 0 {
		advice += fmt.Sprintf(", or have the server refuse what goes over max_msgs and max_bytes, so that the worker waits for room "+
			"(nats stream edit %s --discard new)", c.Name)
	}
	return "drops messages that nobody has read: " + d.text(c), advice
}

func (d *drops) text(c jetstream.StreamConfig) string {
	discard := "old"
	if c.Discard == jetstream.DiscardNew {
		discard = "new"
	}
	return fmt.Sprintf("%s, discard %s", strings.Join(d.limits, ", "), discard)
}

// settingsInspector checks a stream for settings that make it refuse or delete published messages, or change their subjects.
type settingsInspector struct{ *inspection }

// refusals reports settings that prevent a stream from storing the worker's messages. It returns false if the stream can store no
// message. stored is the kind of message, for example "a result".
func (i settingsInspector) refusals(what, stored string, c jetstream.StreamConfig) bool {
	elsewhere := "set another stream, or delete it and set MILLRACE_PROVISION=true"
	switch {
	case c.NoAck:
		i.say(finding.Error, what, "has no_ack set, so the server never confirms that "+stored+" is stored", "clear no_ack (nats stream edit "+c.Name+" --ack)")
	case c.Sealed:
		i.say(finding.Error, what, "is sealed: the server takes no messages for it any more, and can't unseal it", elsewhere)
	case c.AllowMsgCounter:
		i.say(finding.Error, what, "counts (allow_msg_counter): the server refuses every message that is no counter", elsewhere)
	default:
		i.oddities(what, stored, c)
		return true
	}
	return false
}

// oddities warns about settings that make a stream refuse some of the worker's messages, or store them on unexpected subjects.
func (i settingsInspector) oddities(what, stored string, c jetstream.StreamConfig) {
	if c.Discard == jetstream.DiscardNew && c.DiscardNewPerSubject && c.MaxMsgsPerSubject > 0 {
		i.say(finding.Warning, what, fmt.Sprintf("refuses messages on a subject that has %d (discard_new_per_subject): the worker then waits until somebody removes some",
			c.MaxMsgsPerSubject), "lift the limit (nats stream edit "+c.Name+" --max-msgs-per-subject=-1 --no-discard-per-subject)")
	}
	if t := c.SubjectTransform; t != nil {
		i.say(finding.Warning, what, fmt.Sprintf("maps subjects (%q to %q): %s is stored on another subject, where readers with the documented filters don't find it",
			t.Source, t.Destination, stored), "remove the transform, or have readers filter by the subjects as they are stored")
	}
}

// unread warns about an input stream that deletes unprocessed inputs.
func (i settingsInspector) unread(what string, c jetstream.StreamConfig) {
	asked := c
	if b := i.l.Kept.Inputs; b.AskedAge || asked.MaxAge == b.MaxAge {
		asked.MaxAge = 0
	}
	d := findDrops(asked)
	if len(d.limits) == 0 {
		return
	}
	_, advice := d.explain(c)
	i.say(finding.Warning, what, "deletes inputs that nobody has processed: "+d.text(c), advice)
}
