package topology

// This file inspects whether a result stream keeps the log of each partition's state, for a stateful operator. The log is on the subjects
// of the commit markers, and its messages never expire. Only workers remove them.

import (
	"context"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/trim"
)

// stateLog reports whether the result stream keeps the log of the states.
func (s *stream) stateLog() {
	if s.l.Stateful == "" {
		return
	}
	c, name := s.have, s.logName()
	if c.Retention == jetstream.WorkQueuePolicy {
		s.say(finding.Error, s.what, "is a work queue, from which a worker can't read "+name,
			"set MILLRACE_RESULT_STREAM to a stream with retention limits")
		return
	}
	s.later = append(s.later, s.logPurges)
	if found, command := dropsLog(c); len(found) > 0 {
		s.say(finding.Error, s.what, "can delete "+name+": "+strings.Join(found, ", "), "change it ("+command+")")
	}
	s.logSize(name)
}

// logName returns the name of the log in findings.
func (s *stream) logName() string { return "the log of the state of operator " + s.l.Stateful }

// logPurges warns if the worker can't remove the parts of the log that no state still needs.
func (s *stream) logPurges() {
	if s.have.DenyPurge {
		s.warn("denies purges (deny_purge), so "+s.logName()+" only grows",
			"use a stream without deny_purge, or make room for the whole log: the server can't change the setting of a stream")
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, serverPatience)
	defer cancel()
	if err := trim.MayPurge(ctx, s.js, s.have.Name); err != nil {
		s.warn(fmt.Sprintf("the worker can't remove old parts of %s, which then only grows: %v", s.logName(), err),
			"allow the worker's user to publish on "+s.l.API.Subject("STREAM.PURGE."+s.have.Name)+" (docs/security.md)")
	}
}

// dropsLog returns the settings with which the server deletes messages of a log, and the command that changes them.
func dropsLog(c jetstream.StreamConfig) (found []string, command string) {
	var changes []string
	for _, wrong := range []struct {
		is          bool
		name, found string
	}{
		{c.MaxAge > 0 && !c.AllowMsgTTL, "allow_msg_ttl", "max_age " + short(c.MaxAge) + " without allow_msg_ttl"},
		{c.Discard == jetstream.DiscardOld && max(c.MaxBytes, c.MaxMsgs) > 0, "discard", "max_bytes or max_msgs with discard old"},
		{c.MaxMsgsPerSubject > 0, "max_msgs_per_subject", fmt.Sprintf("max_msgs_per_subject %d", c.MaxMsgsPerSubject)},
	} {
		if wrong.is {
			found, changes = append(found, wrong.found), append(changes, wrong.name)
		}
	}
	return found, editStream(c, changes...)
}

// scannedLog is the size of all logs, in bytes, from which logSize warns about max_age. For each message that expires, nats-server 2.15.2
// first reads all older messages that never expire. With a log of 400 MiB and 350 messages per second, this took 0.24 of a core.
const scannedLog = 1 << 30

// logSize compares the size of all logs with max_bytes of the stream.
func (s *stream) logSize(name string) {
	log := s.use.States.Log * int64(s.l.Partitions)
	if log == 0 {
		return
	}
	if c := s.have; c.MaxAge > 0 && log > scannedLog {
		c.MaxAge = 0
		s.warn(fmt.Sprintf("while old messages expire (max_age %s), the server reads all of %s again and again, up to %d MiB", short(s.have.MaxAge),
			name, log>>20), "let no message expire ("+editStream(c, "max_age")+"), and purge results that are read; or lower MILLRACE_STATE_RECORDS")
	}
	found := fmt.Sprintf("%s may take %d MiB: %d MiB for each of %d partitions", name, ceilMiB(log), ceilMiB(s.use.States.Log), s.l.Partitions)
	if c := s.have; c.MaxBytes > 0 && log > c.MaxBytes/2 {
		c.MaxBytes = room(log, c.MaxBytes)
		s.warn(found+fmt.Sprintf(", and max_bytes is %s: when the stream is full, %s", sizeFlag(s.have.MaxBytes), s.full),
			"raise the limit ("+editStream(c, "max_bytes")+"), or lower MILLRACE_STATE_RECORDS or MILLRACE_PARTITIONS")
		return
	}
	s.ok(found)
}
