package natsconn

import (
	"testing"
	"time"
)

// TestLifetimeEndsToTheMoment: a lifetime includes its first moment and excludes its last.
func TestLifetimeEndsToTheMoment(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	life := lifetime{from, from.AddDate(0, 0, 100)}
	for _, c := range []struct {
		what    string
		now     time.Time
		wrong   bool
		advised bool
	}{
		{"before it begins", from.Add(-1), true, true},
		{"as it begins", from, false, false},
		{"with a tenth left", from.AddDate(0, 0, 90), false, false},
		{"with less than a tenth left", from.AddDate(0, 0, 90).Add(1), false, true},
		{"just before it ends", life.until.Add(-1), false, true},
		{"as it ends", life.until, true, true},
	} {
		f := &fileFinding{}
		life.judge(f, c.now, "renew it")
		if f.Wrong != c.wrong || (f.Advice != "") != c.advised {
			t.Errorf("%s: wrong %t, advice %q; want %t, and advice %t", c.what, f.Wrong, f.Advice, c.wrong, c.advised)
		}
	}
}
