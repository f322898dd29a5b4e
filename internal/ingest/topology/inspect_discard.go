package topology

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

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
