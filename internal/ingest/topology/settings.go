package topology

// This file describes each setting of a stream once. A plan has the values for a new stream, which Provision sends. The table of a plan
// has a row for each setting. The row has the flags of the nats command that set the planned value, and the consequences of an existing
// stream's value. The commands and the findings are loops over these rows. consumers.go does the same for consumers.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/store"
	"millrace/internal/ingest/trim"
)

// plan describes one of the worker's three streams.
type plan struct {
	jetstream.StreamConfig        // configuration of a new stream
	bounds                 Bounds // MaxAge and MaxBytes of a new stream
	askedStorage           bool   // whether the user chose Storage

	role, message string // what the stream stores: "the results", and "a result" in it
	drops, full   string // the consequence if a limit deletes messages, and if the stream is full
	variable      string // the start of the names of the variables with the bounds
}

// provisioned is the description of the streams and consumers that Provision creates.
const provisioned = "created by Millrace (MILLRACE_PROVISION)"

func (l Topology) inputPlan() plan {
	p := plan{role: "the input", variable: "MILLRACE_STREAM", full: "the server refuses inputs",
		drops: "deletes inputs that nobody has processed"}
	p.set(l, l.Stream, l.Subjects, l.Kept.Inputs)
	if l.Kept.Trim {
		p.Metadata = trim.WithMark(p.StreamConfig, l.Consumers())
	}
	if l.Exclusive {
		p.SubjectTransform = partitionTransform(l.Partitions)
	}
	return p
}

func (l Topology) resultPlan(version string) plan {
	p := plan{role: "the results", message: "a result", variable: "MILLRACE_RESULT", full: "the worker waits until there is room"}
	p.setOutput(l, l.ResultStream, l.ResultPrefix, l.Kept.Results, version)
	p.AllowBatchPublish = store.ServerBatches(version)
	p.AllowMsgTTL = p.AllowAtomicPublish && l.Stateful != "" // exempts the log of a state from max_age
	return p
}

// deadLetterSuffix follows the name of the result stream in the name of the stream for dead letters (adr/0034).
const deadLetterSuffix = "_DEADLETTER"

func (l Topology) deadLetterPlan(version string) plan {
	p := plan{role: "the dead letters", message: "a dead letter", variable: "MILLRACE_DEADLETTER",
		full: "payloads that are given up are delivered again, and with exclusive delivery partitions wait, until there is room"}
	p.setOutput(l, l.ResultStream+deadLetterSuffix, l.DeadLetterPrefix, l.Kept.DeadLetters, version)
	return p
}

// atomicBatches is the first release with atomic batches.
var atomicBatches = jsapi.Release{Major: 2, Minor: 12}

// setOutput plans a stream with a duplicate window that covers the redeliveries of an input. The stream supports commit markers if
// the worker stores them and the server, of the given version, supports them.
func (p *plan) setOutput(l Topology, name, prefix string, b Bounds, version string) {
	p.set(l, name, mappedSubjects(prefix), b)
	p.drops, p.Duplicates = "drops messages that nobody has read", l.duplicateWindow(b.MaxAge)
	if l.wantsMarkers() && atomicBatches.In(version) {
		p.AllowAtomicPublish = true
		p.Subjects = append(p.Subjects, CommitSubjects(l.CommitPrefix, name))
	}
}

// set plans a stream. When it is full, it refuses messages instead of deleting the oldest ones, which may be unread.
func (p *plan) set(l Topology, name string, subjects []string, b Bounds) {
	p.bounds, p.askedStorage = b, l.Kept.AskedStorage
	p.StreamConfig = jetstream.StreamConfig{
		Name: name, Subjects: subjects, Storage: l.Storage, Replicas: l.Kept.Replicas, MaxAge: b.MaxAge, MaxBytes: b.MaxBytes,
		Description: provisioned,
	}
	if b.MaxBytes > 0 {
		p.Discard = jetstream.DiscardNew
	}
}

const (
	// maxDuplicateWindow bounds the duplicate window of a new stream, because the server keeps every id in memory for that long.
	maxDuplicateWindow = time.Hour

	// defaultDuplicateWindow is the server's default for a stream.
	defaultDuplicateWindow = 2 * time.Minute
)

// duplicateWindow returns the duplicate window of a new stream; 0 means the server's default. The window doesn't exceed the
// stream's maximum age, because the server refuses that.
func (l Topology) duplicateWindow(maxAge time.Duration) time.Duration {
	window := min(redeliverySpan(l.AckWait, l.MaxDeliver), maxDuplicateWindow)
	if maxAge > 0 {
		window = min(window, maxAge)
	}
	if window <= defaultDuplicateWindow {
		return 0
	}
	return window
}

// setting is a row of the table of a stream's settings. A text is empty if it does not apply.
type setting struct {
	name  string // the server's name
	flags string // flags of the nats command for the planned value
	add   bool   // whether `nats stream add` needs the flags, because its default is another value
	fixed bool   // whether the server can't change the setting of an existing stream

	differs string // the stream's value and the different value that the user chose
	note    string // other effects of a change to the planned value
	drops   string // the limit at which the stream deletes messages, read or not
	lift    string // the flag that removes the limit
	removes string // the value with which the server may remove single messages
}

// table returns the settings of a stream, in the order of the flags of `nats stream add`. have is the configuration of the existing
// stream, which holds the given number of bytes.
func (p plan) table(have jetstream.StreamConfig, holds int64) []setting {
	old, perSubject := have.Discard == jetstream.DiscardOld, have.MaxMsgsPerSubject > 0
	return []setting{
		{name: "subjects", add: true, flags: repeat(" --subjects '%s'", p.Subjects)},
		{name: "subject_transform", add: p.SubjectTransform != nil, flags: transformFlags(p.SubjectTransform)},
		{name: "storage", add: p.Storage == jetstream.MemoryStorage, flags: " --storage memory", fixed: true,
			differs: when(p.askedStorage && have.Storage != p.Storage,
				"%s storage, and MILLRACE_PROVISION_STORAGE asks for %s", have.Storage, p.Storage),
			note: "the server can't change the storage of a stream: make another one, or set the variable to what the stream has"},
		{name: "retention", add: true, flags: " --retention " + retentions[p.Retention]},
		{name: "discard", flags: " --discard new"}, // max_bytes adds it
		{name: "max_msgs", drops: when(old && have.MaxMsgs > 0, "max_msgs %d", have.MaxMsgs), lift: " --max-msgs=-1"},
		{name: "max_bytes", add: p.MaxBytes > 0, flags: bytesFlags(p.MaxBytes),
			differs: when(p.bounds.AskedBytes && max(have.MaxBytes, 0) != p.MaxBytes,
				"max_bytes %s, and %s_MAX_BYTES is %s", sizeFlag(have.MaxBytes), p.variable, sizeFlag(p.MaxBytes)),
			note:  when(0 < p.MaxBytes && p.MaxBytes < holds, "it holds %d bytes, and refuses messages until it holds less than that size", holds),
			drops: when(old && have.MaxBytes > 0, "max_bytes %d", have.MaxBytes), lift: " --max-bytes=-1"},
		{name: "allow_msg_ttl", add: p.AllowMsgTTL, flags: " --allow-msg-ttl", removes: when(have.AllowMsgTTL, "allow_msg_ttl")},
		{name: "allow_rollup_hdrs", flags: " --allow-rollup", removes: when(have.AllowRollup, "allow_rollup_hdrs")},
		// Only discard_new_per_subject makes the server refuse messages over a subject's limit. It requires discard new.
		{name: "max_msgs_per_subject", flags: " --max-msgs-per-subject=-1", lift: " --max-msgs-per-subject=-1",
			drops:   when(perSubject && !have.DiscardNewPerSubject, "max_msgs_per_subject %d", have.MaxMsgsPerSubject),
			removes: when(perSubject && (old || !have.DiscardNewPerSubject), "max_msgs_per_subject %d", have.MaxMsgsPerSubject)},
		{name: "discard_new_per_subject", flags: " --no-discard-per-subject"},
		{name: "max_age", add: p.MaxAge > 0, flags: ageFlags(p.MaxAge, have.Duplicates),
			differs: when(p.bounds.AskedAge && have.MaxAge != p.MaxAge,
				"max_age %s, and %s_MAX_AGE is %s", short(have.MaxAge), p.variable, short(p.MaxAge)),
			note: when(p.MaxAge > 0 && (have.MaxAge == 0 || have.MaxAge > p.MaxAge),
				"the server then deletes at once what is older than %s, read or not", short(p.MaxAge)),
			drops: when(have.MaxAge > 0, "max_age %s", have.MaxAge), lift: " --max-age=0s"}, // with either value of discard
		{name: "duplicate_window", add: p.Duplicates > 0, flags: " --dupe-window " + seconds(p.Duplicates)},
		{name: "allow_batched", add: p.AllowBatchPublish, flags: " --allow-fast"},
		{name: "allow_atomic", add: p.AllowAtomicPublish, flags: " --allow-batch"},
		{name: "num_replicas", add: p.Replicas > 1, flags: " --replicas " + strconv.Itoa(p.Replicas),
			differs: when(p.Replicas > 0 && p.Replicas != have.Replicas,
				"%d replicas, and MILLRACE_PROVISION_REPLICAS is %d", have.Replicas, p.Replicas)},
		{name: "metadata", add: true, flags: trim.MetadataFlags(p.Metadata)},
		{name: "allow_direct", add: true, flags: " --no-allow-direct"},
		{name: "max_msg_size", flags: fmt.Sprintf(" --max-msg-size %d", p.MaxMsgSize)},
		{name: "no_ack", flags: " --ack"},
	}
}

// when returns a text if the condition holds, and otherwise an empty one.
func when(condition bool, format string, args ...any) string {
	if !condition {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// row returns the row of the setting with the given name.
func row(table []setting, name string) setting {
	return table[slices.IndexFunc(table, func(s setting) bool { return s.name == name })]
}

// The commands below need version 0.4 or later of the nats command. TestAdvisedCommandsCreateWhatProvisionCreates runs them if that
// command is installed.

// addStream returns the command that creates a stream with the configuration c. If c.Replicas is 0, the stream gets one replica.
func addStream(c jetstream.StreamConfig) string {
	return "nats stream add " + c.Name + addFlags(plan{StreamConfig: c}.table(jetstream.StreamConfig{}, 0))
}

// editStream returns the command that gives an existing stream the values that the named settings have in c.
func editStream(c jetstream.StreamConfig, names ...string) string {
	return "nats stream edit " + c.Name + editFlags(plan{StreamConfig: c}.table(jetstream.StreamConfig{}, 0), names...)
}

func addFlags(table []setting) (flags string) {
	for _, s := range table {
		if s.add {
			flags += s.flags
		}
	}
	return flags + " --defaults"
}

func editFlags(table []setting, names ...string) (flags string) {
	for _, name := range names {
		flags += row(table, name).flags
	}
	return flags
}

// repeat formats each value, and returns the texts as one.
func repeat(format string, values []string) string {
	var b strings.Builder
	for _, v := range values {
		fmt.Fprintf(&b, format, v)
	}
	return b.String()
}

func transformFlags(t *jetstream.SubjectTransformConfig) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" --transform-source '%s' --transform-destination '%s'", t.Source, t.Destination)
}

// retentions has the nats command's names of retention policies.
var retentions = map[jetstream.RetentionPolicy]string{
	jetstream.LimitsPolicy: "limits", jetstream.WorkQueuePolicy: "work", jetstream.InterestPolicy: "interest",
}

// bytesFlags returns the flags for a stream that refuses messages beyond maxBytes; 0 means no limit.
func bytesFlags(maxBytes int64) string {
	if maxBytes <= 0 {
		return " --max-bytes=-1"
	}
	return " --max-bytes " + sizeFlag(maxBytes) + " --discard new"
}

// sizeFlag formats a size, given in bytes, in the largest unit that divides it. The nats command accepts numbers up to 2^31 - 1
// before a unit. A size of 0 or less is no limit.
func sizeFlag(n int64) string {
	if n <= 0 {
		return "none"
	}
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", kib}} {
		if n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ageFlags returns the flags for a maximum age; 0 means no limit. They shorten the stream's duplicate window to that age, because the
// server refuses a longer one.
func ageFlags(maxAge, window time.Duration) string {
	return " --max-age " + seconds(maxAge) + when(maxAge > 0 && window > maxAge, " --dupe-window %s", seconds(maxAge))
}

// seconds formats a duration for the nats command.
func seconds(d time.Duration) string {
	return fmt.Sprintf("%ds", int64(d.Round(time.Second).Seconds()))
}

// short formats a time limit without zero parts at the end, for example 168h instead of 168h0m0s. It returns "none"
// for 0.
func short(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
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
	return kept + when(c.MaxAge > 0, " for %s", short(c.MaxAge)) + when(c.MaxMsgs > 0, ", up to %d messages", c.MaxMsgs) +
		when(c.MaxBytes > 0, ", up to %s", sizeFlag(c.MaxBytes))
}
