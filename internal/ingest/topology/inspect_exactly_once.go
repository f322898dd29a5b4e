package topology

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/finding"
)

// exactlyOnce reports whether a stream stores messages exactly once according to judge, and adds findings. If the
// worker stores no commit markers, it returns false without findings.
func (i streamInspector) exactlyOnce(what string, c jetstream.StreamConfig, judge func(jetstream.StreamConfig, string) (Commits, string, string)) bool {
	if !i.l.wantsMarkers() {
		return false
	}
	way, found, advice := judge(c, i.nc.ConnectedServerVersion())
	if way == NoCommits {
		if !i.l.ResultIDs && c.Name == i.l.ResultStream {
			found += "; so MILLRACE_RESULT_IDS=false has no effect, and results have their ids"
		}
		level, instead := finding.Warning, "; or set MILLRACE_EXACTLY_ONCE=off, if the window is enough"
		if i.l.ExactlyOnce == Required {
			level, instead = finding.Error, "; or set MILLRACE_EXACTLY_ONCE=auto, if the window is enough"
		}
		i.say(level, what, found, advice+instead)
		return false
	}
	if err := i.readMarker(c.Name); err != nil {
		i.failed(what, err, "allow the worker's user to publish on "+i.l.API.Subject("STREAM.MSG.GET."+c.Name)+" and on "+CommitSubjects(i.l.CommitPrefix, c.Name)+" (docs/security.md)")
		return true
	}
	i.say(finding.OK, what, found, "")
	if c.Retention == jetstream.WorkQueuePolicy && !c.AllowRollup {
		i.say(finding.Warning, what, "keeps every commit marker, one per batch, because nothing removes them from a work queue",
			"have each marker replace the one before (nats stream edit "+c.Name+" --allow-rollup)")
	}
	return true
}

// markerPatience is the time limit for reading a commit marker.
const markerPatience = 5 * time.Second

// readMarker checks whether the worker may read a stream's commit markers. The server also answers if there is no
// marker.
func (i streamInspector) readMarker(stream string) error {
	ctx, cancel := context.WithTimeout(i.ctx, markerPatience)
	defer cancel()
	request := fmt.Appendf(nil, `{"last_by_subj":%q}`, CommitSubject(i.l.CommitPrefix, stream, i.l.Stream, i.l.Consumer, 0))
	if _, err := i.nc.RequestWithContext(ctx, i.l.API.Subject("STREAM.MSG.GET."+stream), request); err != nil {
		return fmt.Errorf("read the last commit marker of stream %q: %w", stream, err)
	}
	return nil
}
