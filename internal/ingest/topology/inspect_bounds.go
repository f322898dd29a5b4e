package topology

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

// suggestedBytes is the advised max_bytes for an unbounded stream if the settings have no max_bytes.
const suggestedBytes = 4 << 30

// bounds warns about a stream that can grow without a limit, or differs from the settings for new streams. wanted has the settings
// for a new stream, and b their bounds.
func (i streamInspector) bounds(what string, r role, info *jetstream.StreamInfo, wanted jetstream.StreamConfig, b Bounds) {
	c := info.Config
	i.fill(what, r, info)
	d := &differences{stream: c, holds: int64(info.State.Bytes)}
	d.age(r, b)
	d.bytes(r, b)
	d.replicas(wanted.Replicas)
	d.storage(wanted.Storage, i.l.Kept.AskedStorage)
	if unbounded(c) {
		d.found = append([]string{grows(c)}, d.found...)
		if len(d.flags) == 0 {
			d.bound(r, b)
		}
	}
	if len(d.found) > 0 {
		i.say(finding.Warning, what, strings.Join(d.found, "; "), d.advice())
	}
}

// fill warns about a stream that will soon refuse messages.
func (i streamInspector) fill(what string, r role, info *jetstream.StreamInfo) {
	c, holds := info.Config, int64(info.State.Bytes)
	if c.Discard != jetstream.DiscardNew || c.MaxBytes <= 0 || holds < c.MaxBytes/10*nearlyFull {
		return
	}
	i.say(finding.Warning, what, fmt.Sprintf("holds %d%% of max_bytes %s; when it is full, %s", holds*100/c.MaxBytes, sizeFlag(c.MaxBytes), r.full),
		fmt.Sprintf("process or remove what it holds, or raise the limit (nats stream edit %s%s)", c.Name, bytesFlags(room(holds, c.MaxBytes))))
}

// nearlyFull is the fill level, in tenths of max_bytes, from which fill warns.
const nearlyFull = 8

// room returns the advised max_bytes for a stream with the present size holds. It is twice holds, rounded up to whole
// GiB, but not less than least.
func room(holds, minimum int64) int64 {
	const gib = 1 << 30
	return max(minimum, (2*holds+gib-1)/gib*gib)
}

// unbounded reports whether a stream has no limit on its size.
func unbounded(c jetstream.StreamConfig) bool {
	return c.MaxAge <= 0 && c.MaxBytes <= 0 && c.MaxMsgs <= 0
}

// grows returns a text about how an unbounded stream can fill the disk.
func grows(c jetstream.StreamConfig) string {
	if c.Retention == jetstream.LimitsPolicy {
		return "has no bound: it keeps every message, read or not, until the disk is full"
	}
	return "has no bound: while no worker runs, its backlog can fill the disk"
}

// differences collects the differences of a stream from the settings for new streams, and the flags of `nats stream edit` that
// remove these differences. It ignores settings that the user did not choose.
type differences struct {
	stream       jetstream.StreamConfig
	holds        int64 // in bytes
	found, flags []string
	instead      []string // advice that is not a flag
}

func (d *differences) add(flags, format string, args ...any) {
	d.found = append(d.found, fmt.Sprintf(format, args...))
	d.flags = append(d.flags, flags)
}

func (d *differences) advice() string {
	all := d.instead
	if len(d.flags) > 0 {
		all = append(all, fmt.Sprintf("change it (nats stream edit %s %s)", d.stream.Name, strings.Join(d.flags, " ")))
	}
	return strings.Join(all, "; ") + "; the worker changes no stream that exists"
}

func (d *differences) age(r role, b Bounds) {
	got := d.stream.MaxAge
	if got == b.MaxAge || !b.AskedAge {
		return
	}
	flags := "--max-age " + window(b.MaxAge)
	if b.MaxAge > 0 && d.stream.Duplicates > b.MaxAge {
		flags += " --dupe-window " + window(b.MaxAge)
	}
	if b.MaxAge > 0 && (got == 0 || got > b.MaxAge) {
		d.expires(b.MaxAge)
	}
	d.add(flags, "max_age %s, and %s is %s", orNone(got > 0, short(got)), r.age, orNone(b.MaxAge > 0, short(b.MaxAge)))
}

func (d *differences) bytes(r role, b Bounds) {
	got := max(d.stream.MaxBytes, 0)
	if got == b.MaxBytes || !b.AskedBytes {
		return
	}
	flags := "--max-bytes=-1"
	if b.MaxBytes > 0 {
		flags = strings.TrimPrefix(bytesFlags(b.MaxBytes), " ")
	}
	if b.MaxBytes > 0 && b.MaxBytes < d.holds {
		d.instead = append(d.instead, fmt.Sprintf("it holds %d bytes, and refuses messages until it holds less than that size", d.holds))
	}
	d.add(flags, "max_bytes %s, and %s is %s", orNone(got > 0, sizeFlag(got)), r.bytes, orNone(b.MaxBytes > 0, sizeFlag(b.MaxBytes)))
}

func (d *differences) replicas(want int) {
	if want > 0 && want != d.stream.Replicas {
		d.add("--replicas "+strconv.Itoa(want), "%d replicas, and MILLRACE_PROVISION_REPLICAS is %d", d.stream.Replicas, want)
	}
}

func (d *differences) storage(want jetstream.StorageType, asked bool) {
	if asked && want != d.stream.Storage {
		d.found = append(d.found, fmt.Sprintf("%s storage, and MILLRACE_PROVISION_STORAGE asks for %s", d.stream.Storage, want))
		d.instead = append(d.instead, "the server can't change the storage of a stream: make another one, or set the variable to what the stream has")
	}
}

// bound adds the flags that bound the stream. An input stream gets no maximum age, because inputs must not be deleted before they
// are processed.
func (d *differences) bound(r role, b Bounds) {
	switch {
	case d.stream.Retention != jetstream.LimitsPolicy:
	case r == inputRole:
		d.instead = append(d.instead, "processed inputs stay in it and count: docs/streams.md says how to let them go")
	case b.MaxAge > 0:
		d.expires(b.MaxAge)
		d.flags = append(d.flags, "--max-age "+window(b.MaxAge))
	}
	size := b.MaxBytes
	if size == 0 {
		size = suggestedBytes
	}
	d.flags = append(d.flags, strings.TrimPrefix(bytesFlags(room(d.holds, size)), " "))
	d.instead = append(d.instead, "with discard new, a stream that is full refuses messages")
}

// expires adds a warning about the messages that a smaller age deletes.
func (d *differences) expires(age time.Duration) {
	d.instead = append(d.instead, fmt.Sprintf("the server then deletes at once what is older than %s, read or not", short(age)))
}

func orNone(limited bool, text string) string {
	if !limited {
		return "none"
	}
	return text
}

// limitOfResults returns the size limit of messages with results. It is the smaller limit of the result stream and the server, or
// the server's limit if the stream's is unknown.
func (i *inspection) limitOfResults() limit {
	if s, err := i.js.Stream(i.ctx, i.l.ResultStream); err == nil {
		if maximum := int64(s.CachedInfo().Config.MaxMsgSize); maximum > 0 && maximum < i.maxPayload {
			return limit{maximum, "stream " + i.l.ResultStream, "raise max_msg_size of stream " + i.l.ResultStream}
		}
	}
	return limitOfServer(i.maxPayload)
}

func limitOfServer(maxPayload int64) limit {
	return limit{maxPayload, "the server", "raise the server's max_payload"}
}

// resultHeaders is the assumed size of a result's headers in bytes.
const resultHeaders = 1024

// frames compares the limits of frames with the size of a batch, and with the message size limits of the server and the result
// stream.
func (i serverInspector) frames() {
	f, what := i.use.Frames, "frames"
	if f.none() {
		return
	}
	worst := finding.OK
	say := func(l finding.Level, found, advice string) { worst = max(worst, l); i.say(l, what, found, advice) }
	if int64(f.Bytes) < i.maxPayload {
		say(finding.Warning, fmt.Sprintf("the server takes messages of %d bytes, and MILLRACE_FRAME_BYTES is %d", i.maxPayload, f.Bytes),
			fmt.Sprintf("larger ones that are framed or compressed go to the dead-letter subject; raise MILLRACE_FRAME_BYTES to at least %d", i.maxPayload))
	}
	room := int(i.results.bytes) - resultHeaders
	records := f.fit(room)
	if f.Framed && records == 0 {
		say(finding.Warning, fmt.Sprintf("the result of one record may have %d bytes, and %s takes messages of %d", f.Result, i.results.of, i.results.bytes),
			fmt.Sprintf("a record with a larger result goes to the dead-letter subject; %s, or use MILLRACE_RESULT_FORMAT=binary or smaller operators", i.results.raise))
	}
	if worst != finding.OK {
		return
	}
	found := fmt.Sprintf("a record may have up to %d bytes (MILLRACE_BATCH_BYTES)", min(i.use.BatchBytes, f.Bytes))
	if f.Framed {
		found = fmt.Sprintf("up to %d records and %d bytes per message; %s", f.Records, f.Bytes, found)
	}
	if f.Framed && records < f.Records {
		found += fmt.Sprintf("; the result of more than about %d records comes in parts, because %s takes messages of %d bytes", records, i.results.of, i.results.bytes)
	}
	i.say(finding.OK, what, found, "")
}

// The smallest and largest value of MILLRACE_ACK_WAIT.
const (
	minAckWait = time.Second
	maxAckWait = time.Hour
)

// agreement compares a consumer's settings with the worker's variables. The variables apply only when a consumer is
// created. An existing consumer keeps its settings, so agreement reports variables that were changed afterwards.
func agreement(l Topology, u Use, c jetstream.ConsumerConfig, say func(level finding.Level, found, advice string)) {
	edit := fmt.Sprintf("(nats consumer edit %s %s", l.Stream, c.Durable)
	acknowledges := c.AckPolicy != jetstream.AckNonePolicy // ack wait applies only with acknowledgements
	if acknowledges && c.AckWait != l.AckWait {
		set := ""
		if c.AckWait >= minAckWait && c.AckWait <= maxAckWait {
			set = fmt.Sprintf("set MILLRACE_ACK_WAIT=%s, or ", c.AckWait)
		}
		say(finding.Warning, fmt.Sprintf("ack wait %s, and MILLRACE_ACK_WAIT is %s", c.AckWait, l.AckWait),
			fmt.Sprintf("the consumer's setting applies; %schange the consumer %s --wait %s)", set, edit, l.AckWait))
	}
	if acknowledges && u.Linger >= c.AckWait {
		say(finding.Warning, fmt.Sprintf("ack wait %s, and MILLRACE_LINGER is %s", c.AckWait, u.Linger),
			"payloads may be delivered again while they wait for their batch; lower MILLRACE_LINGER or raise the consumer's ack wait")
	}
	if asked := l.AskedAckPending; c.MaxAckPending > 0 && c.MaxAckPending < asked {
		say(finding.Warning, fmt.Sprintf("max ack pending %d, and MILLRACE_MAX_ACK_PENDING is %d", c.MaxAckPending, asked),
			fmt.Sprintf("all workers of the consumer share it, and some may wait for others; change it %s --max-pending %d)", edit, asked))
	}
}
