package layout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Renewed says of which inputs the ids of results may be taken. An id is the input stream's name and a sequence in it, and the
// result stream knows one for as long as its duplicate window. So where an input stream was deleted and made again under its
// name, its first inputs have ids that results of the old one's may have taken, and theirs would be dropped as duplicates.
type Renewed struct {
	Created time.Time // when the input stream was made
	Until   time.Time // inputs stored up to then are concerned; zero: none is
}

// windowSlack is added to the duplicate window: a result of the old stream's may have been on its way as the new one was made.
const windowSlack = time.Minute

// LookForRenewal asks the server whether the input stream may have had a predecessor of its name with results that the result
// stream still knows. What was found before is passed in, and holds for as long as the stream is the same.
func LookForRenewal(ctx context.Context, js jetstream.JetStream, l Layout, before Renewed) (Renewed, error) {
	in, err := js.Stream(ctx, l.Stream)
	if err != nil {
		return before, fmt.Errorf("look at stream %q: %w", l.Stream, err)
	}
	created := in.CachedInfo().Created
	if created.Equal(before.Created) {
		return before, nil
	}
	now := Renewed{Created: created}
	out, err := js.Stream(ctx, l.ResultStream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return now, nil // once it is made it knows no id of before
	case err != nil:
		return before, fmt.Errorf("look at stream %q: %w", l.ResultStream, err)
	}
	if info := out.CachedInfo(); mayHold(info, created) {
		now.Until = created.Add(info.Config.Duplicates + windowSlack)
	}
	return now, nil
}

// mayHold says whether a result stream may have stored something before a moment: that is to be seen, or no more, as what it had
// is gone.
func mayHold(results *jetstream.StreamInfo, before time.Time) bool {
	state := results.State
	switch {
	case !results.Created.Before(before), state.LastSeq == 0:
		return false
	case state.Msgs == 0 || state.FirstSeq > 1:
		return true
	}
	return state.FirstTime.Before(before)
}

// Distinction is what the id of a result has behind the sequence, for an input that was stored at that moment: nothing, but for
// those of a renewed stream that are concerned.
func (r Renewed) Distinction(stored time.Time) string {
	if r.Until.IsZero() || stored.After(r.Until) {
		return ""
	}
	return fmt.Sprintf(":%d", r.Created.UnixMilli())
}
