package natsconn

import (
	"fmt"
	"time"
)

// lifetime is a period of validity. A zero time means no bound.
type lifetime struct{ from, until time.Time }

// lastPart determines when inspect warns about an expiry: in the last tenth of a lifetime. Automatic renewal should
// have happened by then (cert-manager renews at two thirds), and there is still time to renew manually.
const lastPart = 10

// judge adds to a finding whether the lifetime has begun, ended or is about to end. renew says how to renew.
func (l lifetime) judge(f *fileFinding, now time.Time, renew string) {
	const day = "2006-01-02 15:04:05 MST"
	switch {
	case !l.from.IsZero() && now.Before(l.from):
		f.Wrong = true
		f.Found += fmt.Sprintf(", is not valid before %s, and it is %s now", l.from.UTC().Format(day), now.UTC().Format(day))
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
