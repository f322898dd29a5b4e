package partition

import "testing"

// TestCautionForgivesWithALeaseThatEndedWell shows that deaths before a properly ended lease aren't added to deaths
// after it.
func TestCautionForgivesWithALeaseThatEndedWell(t *testing.T) {
	c := Caution{Floor: 10, Until: 20, Deaths: alone, Trials: trials - 1}
	if !c.AfterDeath(10, 20, true).GiveUp() {
		t.Error("one death more of a payload alone, and it is not given up")
	}
	began := c.Begin(10)
	if want := (Caution{Floor: 10, Until: 20, Deaths: alone}); began != want {
		t.Errorf("after a lease that ended well: %v, want %v", began, want)
	}
	if began.AfterDeath(10, 20, true).GiveUp() {
		t.Errorf("given up after the first of %d deaths", trials)
	}
}
