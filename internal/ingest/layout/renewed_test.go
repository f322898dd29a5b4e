package layout

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestLookForRenewal(t *testing.T) {
	t.Parallel()
	made := func(names ...string) func(*rig) {
		return func(r *rig) {
			for _, name := range names {
				switch name {
				case "INGEST":
					r.createStream(jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}})
				case "RESULTS":
					r.createStream(jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>"}, Duplicates: 5 * time.Minute})
				default:
					r.publish(name)
				}
			}
		}
	}
	for _, c := range []struct {
		name string
		made func(*rig)
		want bool
	}{
		{"input first", made("INGEST", "RESULTS", "results.a"), false},
		{"no result stream", made("INGEST"), false},
		{"results first, and nothing there", made("RESULTS", "INGEST"), false},
		{"results first, and none before the inputs", made("RESULTS", "INGEST", "results.a", "results.b"), false},
		{"with results before", made("RESULTS", "results.a", "INGEST", "results.b"), true},
		{"with results that are gone", func(r *rig) { made("RESULTS", "results.a", "INGEST", "results.b")(r); r.purge("RESULTS") }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c.made(r)
			found, err := LookForRenewal(r.ctx(), r.js, r.layout, Renewed{})
			if err != nil {
				t.Fatal(err)
			}
			if found.Until.IsZero() == c.want {
				t.Fatalf("inputs up to %v are concerned, want any: %v", found.Until, c.want)
			}
			if want := found.Created.Add(6 * time.Minute); c.want && !found.Until.Equal(want) {
				t.Errorf("inputs up to %v are concerned, want up to %v", found.Until, want)
			}
			if c.name != "no result stream" {
				r.purge("RESULTS") // what there was before is known
			}
			if again, err := LookForRenewal(r.ctx(), r.js, r.layout, found); err != nil || again != found {
				t.Errorf("at the second look %+v and %v, want %+v", again, err, found)
			}
		})
	}
}

func TestLookForRenewalOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := Renewed{Created: time.Unix(1, 0)}
	if found, err := LookForRenewal(r.ctx(), r.js, r.layout, before); err == nil || found != before {
		t.Errorf("without streams: %+v and %v, want what was known and an error", found, err)
	}
}

func TestDistinction(t *testing.T) {
	t.Parallel()
	created := time.UnixMilli(1763776000123)
	renewed := Renewed{Created: created, Until: created.Add(time.Minute)}
	for _, c := range []struct {
		r      Renewed
		stored time.Time
		want   string
	}{
		{Renewed{Created: created}, created, ""},
		{renewed, created, ":1763776000123"},
		{renewed, created.Add(time.Minute), ":1763776000123"},
		{renewed, created.Add(time.Minute + 1), ""},
	} {
		if got := c.r.Distinction(c.stored); got != c.want {
			t.Errorf("%+v, stored at %v: %q, want %q", c.r, c.stored, got, c.want)
		}
	}
}

func (r *rig) publish(subject string) {
	r.t.Helper()
	if _, err := r.js.Publish(r.ctx(), subject, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) purge(stream string) {
	r.t.Helper()
	s, err := r.js.Stream(r.ctx(), stream)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := s.Purge(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
}
