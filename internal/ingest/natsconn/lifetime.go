package natsconn

import (
	"fmt"
	"time"
)

// lifetime is when something counts. A zero time is no bound.
type lifetime struct{ from, until time.Time }

// lastPart is the share of a life after which what is renewed by itself should have been: cert-manager renews at two
// thirds. What is left then is time to do it by hand.
const lastPart = 10

// judge adds to a finding what its lifetime means now. renew is how to get a new one.
func (l lifetime) judge(f *fileFinding, now time.Time, renew string) {
	const day = "2006-01-02 15:04:05 MST"
	switch {
	case !l.from.IsZero() && now.Before(l.from):
		f.Wrong = true
		f.Found += fmt.Sprintf(", does not count before %s, and it is %s now", l.from.UTC().Format(day), now.UTC().Format(day))
		f.Advice = "set the clock of this machine, or wait"
	case !l.until.IsZero() && !now.Before(l.until):
		f.Wrong = true
		f.Found += fmt.Sprintf(", expired at %s, %s ago", l.until.UTC().Format(day), now.Sub(l.until).Round(time.Second))
		f.Advice = renew
	case !l.until.IsZero():
		f.Found += ", expires at " + l.until.UTC().Format(day)
		if !l.from.IsZero() && l.until.Sub(now) < l.until.Sub(l.from)/lastPart {
			f.Found += fmt.Sprintf(", in %s", l.until.Sub(now).Round(time.Second))
			f.Advice = renew
		}
	}
}
