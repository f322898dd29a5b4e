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
