package jsapi

import "testing"

func TestReleases(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.14.0": true, "2.15.2": true, "2.14.0-RC.1": true, "3.0.0": true, "10.1": true,
		"2.13.9": false, "2.9.25": false, "1.14": false, "": false, "2": false, "unknown": false, "2.x": false, "3.x": false, "3": false, "15": false,
	} {
		if got := (Release{2, 14}).In(version); got != want {
			t.Errorf("%q: %v, want %v", version, got, want)
		}
	}
}
