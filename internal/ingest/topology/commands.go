package topology

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/trim"
)

// The commands in this file need version 0.4 or later of the nats command. TestNatsCommands runs them if that command is installed.

// ExplainCommands appends a finding about the installation of the nats command if one of the findings advises that command.
func ExplainCommands(findings []finding.Finding) []finding.Finding {
	for _, f := range findings {
		if strings.Contains(f.Advice, "nats stream ") || strings.Contains(f.Advice, "nats consumer ") {
			return append(findings, finding.Finding{What: "the nats command", Found: "it runs the advice above; it is at https://github.com/nats-io/natscli/releases, " +
				"or install it with: go install github.com/nats-io/natscli/nats@latest (0.4 or later; --server, --creds, --js-domain and --js-api-prefix say where and as whom)"})
		}
	}
	return findings
}

// addStream returns the command that creates a stream with the settings c. If c.Replicas is 0, the stream gets one replica.
func addStream(c jetstream.StreamConfig) string {
	var b strings.Builder
	fmt.Fprintf(&b, "nats stream add %s%s", c.Name, subjectFlags(c.Subjects))
	if c.SubjectTransform != nil {
		fmt.Fprintf(&b, " --transform-source '%s' --transform-destination '%s'", c.SubjectTransform.Source, c.SubjectTransform.Destination)
	}
	if c.Storage == jetstream.MemoryStorage {
		b.WriteString(" --storage memory")
	}
	b.WriteString(" --retention " + retentionFlag(c.Retention))
	if c.MaxBytes > 0 {
		b.WriteString(bytesFlags(c.MaxBytes))
	}
	if c.MaxAge > 0 {
		b.WriteString(" --max-age " + window(c.MaxAge))
	}
	if c.Duplicates > 0 {
		b.WriteString(" --dupe-window " + window(c.Duplicates))
	}
	if c.AllowBatchPublish {
		b.WriteString(" --allow-fast")
	}
	if c.AllowAtomicPublish {
		b.WriteString(" --allow-batch")
	}
	if c.Replicas > 1 {
		b.WriteString(" --replicas " + strconv.Itoa(c.Replicas))
	}
	b.WriteString(trim.MetadataFlags(c.Metadata))
	return b.String() + " --no-allow-direct --defaults"
}

func subjectFlags(subjects []string) string {
	var b strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&b, " --subjects '%s'", s)
	}
	return b.String()
}

// bytesFlags returns the flags for a stream that refuses messages beyond maxBytes.
func bytesFlags(maxBytes int64) string {
	return " --max-bytes " + sizeFlag(maxBytes) + " --discard new"
}

// retentionFlag returns the nats command's name of a retention policy.
func retentionFlag(r jetstream.RetentionPolicy) string {
	switch r {
	case jetstream.WorkQueuePolicy:
		return "work"
	case jetstream.InterestPolicy:
		return "interest"
	}
	return "limits"
}

// sizeFlag formats a size, given in bytes, in the largest unit that divides it. The nats command accepts numbers up to 2^31 - 1
// before a unit.
func sizeFlag(n int64) string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", kib}} {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// addConsumer returns the command that creates the consumer of shared delivery.
func addConsumer(l Topology) string {
	c := consumerConfig(l)
	return fmt.Sprintf("nats consumer add %s %s --pull%s --ack explicit%s --defaults", l.Stream, c.Durable, filterFlags(c.FilterSubjects, "'"), consumerFlags(c))
}

// addPartitionConsumers returns the shell command that creates the consumers of the partitions from first to last.
func addPartitionConsumers(l Topology, first, last int) string {
	c := partitionConsumerConfig(l, 0)
	filters := make([]string, len(l.Subjects))
	for i, s := range l.Subjects {
		filters[i] = "$p." + s
	}
	return fmt.Sprintf(`for p in $(seq %d %d); do nats consumer add %s "%s-$p" --pull%s --ack all%s --pinned-groups %s --pinned-ttl %s --metadata %s=%s --defaults; done`,
		first, last, l.Stream, l.Consumer, filterFlags(filters, `"`), consumerFlags(c), PriorityGroup, PinnedFor, MarkDelivered, c.Metadata[MarkDelivered])
}

// consumerFlags returns the flags that the consumers of both delivery modes have.
func consumerFlags(c jetstream.ConsumerConfig) string {
	flags := fmt.Sprintf(" --deliver all --wait %s --max-deliver=-1", c.AckWait)
	if c.MaxAckPending > 0 {
		flags += fmt.Sprintf(" --max-pending %d", c.MaxAckPending)
	}
	return flags
}

func filterFlags(filters []string, quote string) string {
	var b strings.Builder
	for _, f := range filters {
		b.WriteString(" --filter " + quote + f + quote)
	}
	return b.String()
}

// keeps describes the retention and the limits of a stream.
func keeps(c jetstream.StreamConfig) string {
	kept := map[jetstream.RetentionPolicy]string{
		jetstream.LimitsPolicy: "every message", jetstream.WorkQueuePolicy: "what is not acknowledged",
		jetstream.InterestPolicy: "what not every consumer has acknowledged",
	}[c.Retention]
	if trim.Marked(c) && c.Retention == jetstream.LimitsPolicy {
		kept = "each message until every consumer has acknowledged it"
	}
	if c.MaxAge > 0 {
		kept += " for " + short(c.MaxAge)
	}
	if c.MaxMsgs > 0 {
		kept += fmt.Sprintf(", up to %d messages", c.MaxMsgs)
	}
	if c.MaxBytes > 0 {
		kept += ", up to " + sizeFlag(c.MaxBytes)
	}
	return kept
}

// short formats a duration without zero parts at the end, for example 168h instead of 168h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
