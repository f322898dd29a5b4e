package topology

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/publisher"
	"millrace/internal/ingest/trim"
)

// role has texts about the purpose of a stream, for findings.
type role struct {
	age, bytes string // names of the variables with the stream's bounds
	full       string // effect of a full stream
}

var (
	inputRole      = role{"MILLRACE_STREAM_MAX_AGE", "MILLRACE_STREAM_MAX_BYTES", "the server refuses inputs"}
	resultRole     = role{"MILLRACE_RESULT_MAX_AGE", "MILLRACE_RESULT_MAX_BYTES", "the worker waits until there is room"}
	deadLetterRole = role{"MILLRACE_DEADLETTER_MAX_AGE", "MILLRACE_DEADLETTER_MAX_BYTES", "payloads that are given up are delivered again, and with exclusive delivery partitions wait, until there is room"}
)

// streamSettings returns the settings of a new stream. A full stream refuses messages instead of deleting the oldest ones, which
// may be unread.
func (l Topology) streamSettings(name string, subjects []string, b Bounds) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: l.Storage, Replicas: l.Kept.Replicas, MaxAge: b.MaxAge, MaxBytes: b.MaxBytes,
		Description: provisioned,
	}
	if b.MaxBytes > 0 {
		c.Discard = jetstream.DiscardNew
	}
	return c
}

func inputSettings(l Topology) jetstream.StreamConfig {
	c := l.streamSettings(l.Stream, l.Subjects, l.Kept.Inputs)
	if l.Kept.Trim {
		c.Metadata = trim.WithMark(c, l.Consumers())
	}
	if l.Exclusive {
		c.SubjectTransform = partitionTransform(l.Partitions)
	}
	return c
}

// resultSettings returns the settings of the result stream. The stream accepts batches if the server supports them. Its duplicate
// window covers the redeliveries of an input, up to maxDuplicateWindow. With exclusive delivery the stream accepts commit markers.
func resultSettings(js jetstream.JetStream, l Topology) jetstream.StreamConfig {
	c := l.streamSettings(l.ResultStream, mappedSubjects(l.ResultPrefix), l.Kept.Results)
	c.AllowBatchPublish = publisher.ServerBatches(js.Conn().ConnectedServerVersion())
	c.Duplicates = duplicateWindow(l, c.MaxAge)
	l.markSettings(&c, js.Conn().ConnectedServerVersion())
	return c
}

// deadLetterSettings returns the settings of the stream for dead letters. Its duplicate window is computed like that of the result
// stream.
func deadLetterSettings(js jetstream.JetStream, l Topology) jetstream.StreamConfig {
	c := l.streamSettings(l.ResultStream+deadLetterSuffix, mappedSubjects(l.DeadLetterPrefix), l.Kept.DeadLetters)
	c.Duplicates = duplicateWindow(l, c.MaxAge)
	l.markSettings(&c, js.Conn().ConnectedServerVersion())
	return c
}

// deadLetterSuffix follows the name of the result stream in the name of the stream for dead letters (adr/0034).
const deadLetterSuffix = "_DEADLETTER"

const (
	// maxDuplicateWindow bounds the duplicate window of a new result stream, because the server keeps every id in memory
	// for that long.
	maxDuplicateWindow = time.Hour

	// defaultDuplicateWindow is the server's default for a stream.
	defaultDuplicateWindow = 2 * time.Minute
)

// duplicateWindow returns the duplicate window of a new stream; 0 means the server's default. The window doesn't exceed the
// stream's maximum age, because the server refuses that.
func duplicateWindow(l Topology, maxAge time.Duration) time.Duration {
	window := min(redeliverySpan(l.AckWait, l.MaxDeliver), maxDuplicateWindow)
	if maxAge > 0 {
		window = min(window, maxAge)
	}
	if window <= defaultDuplicateWindow {
		return 0
	}
	return window
}
