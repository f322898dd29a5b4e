package topology

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

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
