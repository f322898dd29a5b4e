package wildcard

import "testing"

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, wanted string
		want            bool
	}{
		{"results.>", "results.>", true}, {">", "results.>", true}, {"*.>", "results.>", true},
		{"results.>", "results.web.*", true}, {"results.*", "results.web", true}, {"results.*", "results.*", true},
		{"results", "results", true}, {"results.web.*", "results.web.en", true},
		{"results.*", "results.>", false}, {"results.web.>", "results.>", false}, {"results", "results.>", false},
		{"results.>", "results", false}, {"results.web", "results.*", false}, {"results.*", "results.web.en", false},
		{"results.web.en", "results.web", false}, {"other.>", "results.>", false}, {"results.>", ">", false},
	} {
		if got := Covers(c.pattern, c.wanted); got != c.want {
			t.Errorf("Covers(%q, %q) = %v, want %v", c.pattern, c.wanted, got, c.want)
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"ingest.>", "ingest.a", true}, {"ingest.>", "ingest", false}, {"a.*", "a.b", true}, {"a.*", "*.b", true}, {"a.b", "a.c", false},
		{"a.b", "a.b.c", false}, {"a.*.c.d", "a.b.c", false}, {">", "a", true}, {"a.>", "*.b.c", true}, {"*", "a.b", false}, {"a", "a", true},
	} {
		if got := Overlap(c.a, c.b); got != c.want || Overlap(c.b, c.a) != c.want {
			t.Errorf("%q and %q: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
