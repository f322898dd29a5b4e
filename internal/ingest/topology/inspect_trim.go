package topology

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
	"millrace/internal/ingest/trim"
)

// trimInspector checks that processed inputs, and no other inputs, are removed from the input stream.
type trimInspector struct{ streamInspector }

// trimPatience is the time limit for each of trimInspector's checks that query the server.
const trimPatience = 2 * time.Second

func (i trimInspector) inspect() {
	s, err := i.js.Stream(i.ctx, i.l.Stream)
	if err != nil {
		return // the error is reported already
	}
	info, what := s.CachedInfo(), "processed inputs in stream "+i.l.Stream
	switch c := info.Config; {
	case c.Retention == jetstream.InterestPolicy:
		i.say(finding.Warning, what, "retention by interest: when any consumer of the stream is removed, also one of another program that only looks, "+
			"nats-server may remove inputs that nobody has processed (docs/streams.md)",
			fmt.Sprintf("have the workers remove processed inputs instead (nats stream edit %s --retention limits --discard new%s); they may keep running",
				c.Name, trim.MetadataFlags(trim.WithMark(c, i.l.Consumers()))))
	case c.Retention == jetstream.WorkQueuePolicy:
		i.workQueue(what, info)
	case i.l.Kept.AskedEverything && trim.Marked(c):
		i.say(finding.Warning, what, "workers remove them, and MILLRACE_STREAM_RETENTION asks for limits", fmt.Sprintf("remove %s from the stream's metadata, or "+
			"leave the variable out", trim.MarkKey))
	default:
		i.trimmed(what, info)
	}
}

// trimmed checks a stream with retention by limits.
func (i trimInspector) trimmed(what string, info *jetstream.StreamInfo) {
	ctx, cancel := context.WithTimeout(i.ctx, trimPatience)
	defer cancel()
	state, err := trim.Look(ctx, i.js, info, i.l.Trim)
	if err == nil && state.Held == trim.None {
		ctx, cancel := context.WithTimeout(i.ctx, trimPatience)
		defer cancel()
		err = trim.May(ctx, i.js, info.Config, i.l.Consumers())
	}
	c := info.Config
	switch {
	case err != nil:
		i.say(finding.Warning, what, fmt.Sprintf("this worker can't remove them, so the stream fills unless another deployment's workers do: %v", err),
			fmt.Sprintf("allow the worker's user to publish on %s, and have its consumers registered (nats stream edit %s%s); or set MILLRACE_STREAM_TRIM=false",
				strings.Join(i.subjects(c.Name), ", "), c.Name, trim.MetadataFlags(trim.WithMark(c, i.l.Consumers()))))
	case state.Held == trim.NotTrimmed && c.Discard == jetstream.DiscardNew && c.MaxAge == 0 && !i.l.Kept.AskedEverything && i.l.Trim == trim.Auto:
		i.say(finding.Warning, what, "they stay, and the stream refuses new inputs when it is full: workers trim only streams with a mark",
			fmt.Sprintf("have the workers remove them (nats stream edit %s%s)", c.Name, trim.MetadataFlags(trim.WithMark(c, i.l.Consumers()))))
	case state.Held == trim.NotTrimmed:
	case state.Held != trim.None:
		i.say(finding.Warning, what, "they stay: "+state.Explain(), "see docs/streams.md, \"How processed inputs leave the stream\"")
	case state.Holder != "":
		i.say(finding.OK, what, fmt.Sprintf("workers remove them; consumer %s holds the floor, %d sequences before the end", state.Holder, state.Behind()), "")
	default:
		i.say(finding.OK, what, "workers remove them", "")
	}
}

// subjects returns the API subjects on which a worker must be allowed to publish for trimming a stream.
func (i trimInspector) subjects(stream string) (subjects []string) {
	for _, request := range []string{"CONSUMER.LIST", "STREAM.MSG.GET", "STREAM.PURGE"} {
		subjects = append(subjects, i.l.API.Subject(request+"."+stream))
	}
	return subjects
}

// workQueue checks a work queue, from which the server itself removes inputs.
func (i trimInspector) workQueue(what string, info *jetstream.StreamInfo) {
	if c, err := i.js.Consumer(i.ctx, i.l.Stream, i.l.Consumer); err == nil { // an error is reported already
		i.leftInQueue(what, info, c.CachedInfo())
	}
}

// leftInQueue reports acknowledged inputs that the server has kept. That happens when the server is killed.
func (i trimInspector) leftInQueue(what string, info *jetstream.StreamInfo, c *jetstream.ConsumerInfo) {
	floor := c.AckFloor.Stream
	if info.State.Msgs == 0 || info.State.FirstSeq > floor || !coversAll(c.Config, info.Config) {
		return
	}
	i.say(finding.Warning, what, fmt.Sprintf("the work queue holds inputs up to sequence %d that are acknowledged, as after a crash of the server: nobody gets them "+
		"again, and they count against its limits", floor), fmt.Sprintf("remove them (nats stream purge %s --seq %d --force)", i.l.Stream, floor+1))
}

// coversAll reports whether a consumer receives every message of its stream.
func coversAll(c jetstream.ConsumerConfig, s jetstream.StreamConfig) bool {
	filters := orOne(c.FilterSubjects, c.FilterSubject)
	return len(filters) == 0 || allCovered(s.Subjects, filters)
}
