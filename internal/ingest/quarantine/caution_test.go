package quarantine

import (
	"testing"
	"time"
)

// TestCautionFollowsWhatTheConsumerSays shows that a worker starts in strict mode. It then follows the consumer's
// outstanding deliveries.
func TestCautionFollowsWhatTheConsumerSays(t *testing.T) {
	start := time.Unix(1000, 0)
	const horizon = time.Minute
	for _, c := range []struct {
		what                          string
		outstanding, redelivered, own int
		want                          strictness
	}{
		{"others have some that came again", 5, 2, 3, strict},
		{"others have some, and none came again", 5, 0, 3, cautious},
		{"all that is outstanding is this worker's", 3, 2, 3, relaxed},
		{"nothing is outstanding", 0, 0, 0, relaxed},
	} {
		k := caution{horizon: horizon}
		k.begin(5, 2, start)
		if got := k.level(start); got != strict {
			t.Fatalf("it begins at %d, want %d", got, strict)
		}
		k.heard(c.outstanding, c.redelivered, c.own)
		if got := k.level(start); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	k := caution{horizon: horizon}
	k.begin(1, 0, start)
	if got := k.level(start); got != cautious {
		t.Errorf("with one outstanding that never came again it begins at %d, want %d", got, cautious)
	}
	if got := k.level(start.Add(horizon)); got != relaxed {
		t.Errorf("when no suspect can stay away any longer it is %d, want %d", got, relaxed)
	}
}
