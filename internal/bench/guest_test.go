package bench

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace/internal/bench/report"
)

// visitor is a guest of two rows, the second compared with the first; measured gets the name of each as it is.
func visitor(measured *[]string, second error) Guest {
	row := func(t *Track, name string, figure float64, base bool, err error) *Contender {
		return t.Contender(report.Row{Name: name}, base, func(_ context.Context, c *Contender, _ uint64) error {
			*measured = append(*measured, name)
			c.Add("height", "m", figure)
			return err
		})
	}
	return Guest{
		Group: "visit", MinBytes: 2, MaxBytes: 100,
		Columns: []Column{
			{Title: "m high", Legend: "above the sea", Figure: "height", Write: func(s report.Spread) string { return decimal(s.Median) }},
			{Title: "x hill", Figure: "height over the hill", Write: func(s report.Spread) string { return times(s.Median) }},
		},
		Experiments: []GuestExperiment{{
			Rows: []Entry{{Name: "hill", Shows: "a hill"}, {Name: "mountain", Shows: "a mountain"}},
			Run: func(ctx context.Context, t *Track) error {
				t.Note("sizes %v", t.Sizes(7, 8))
				hill, mountain := row(t, "hill", 500, true, nil), row(t, "mountain", 2000, false, second)
				if err := t.Race(ctx, hill, mountain); err != nil {
					return err
				}
				mountain.Compare("height over the hill", "height", hill)
				t.Finish(hill, mountain)
				return nil
			},
		}},
	}
}

// TestGuestIsMeasuredLikeTheOthers: in turns, compared by round, in a table and in the report.
func TestGuestIsMeasuredLikeTheOthers(t *testing.T) {
	var measured []string
	var table bytes.Buffer
	o := tiny(openHost(t))
	o.Guests, o.Out = []Guest{visitor(&measured, nil)}, &table
	o.Groups, o.Bytes = []string{"visit"}, nil
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"hill", "mountain", "hill", "mountain"}; !slices.Equal(measured, want) {
		t.Errorf("measured were %v, want %v", measured, want)
	}
	if len(r.Rows) != 2 || r.Rows[1].Group != "visit" || r.Rows[1].Device != "" {
		t.Fatalf("the rows are %+v", r.Rows)
	}
	if f, ok := r.Rows[1].Figure("height over the hill"); !ok || f.Median != 4 || f.N != 2 {
		t.Errorf("the mountain is %+v hills high, want 4 in 2 rounds", f)
	}
	for _, want := range []string{"m high  x hill", "m high: above the sea", "sizes [7 8]", "2000", "4x"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	all := List(o.Guests...)
	if got := all[len(all)-1]; got != (Entry{Group: "visit", Name: "mountain", Shows: "a mountain"}) {
		t.Errorf("the last row of all is %+v", got)
	}
}

// TestGuestRowsThatCannotBe: a base that nobody asked for stays out of the report, and a row that cannot be measured
// says why, where any other error ends the run.
func TestGuestRowsThatCannotBe(t *testing.T) {
	var measured []string
	o := tiny(openHost(t))
	o.Groups, o.Rows, o.Bytes = []string{"visit", "latency"}, []string{"mountain"}, []int{4 << 10, 50}
	if err := o.Check(); err == nil || !strings.Contains(err.Error(), `no group "visit"`) {
		t.Errorf("without the guest: %v", err)
	}
	var table bytes.Buffer
	o.Guests, o.Out = []Guest{visitor(&measured, Unable("no map of %s", "it"))}, &table
	o.Bytes = []int{50}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 1 || r.Rows[0].Name != "mountain" || r.Rows[0].Skipped != "no map of it" {
		t.Errorf("the rows are %+v", r.Rows)
	}
	if !strings.Contains(table.String(), "mountain: -: no map of it") || !strings.Contains(table.String(), "sizes [50]") {
		t.Errorf("the table is\n%s", table.String())
	}
	broken := errors.New("an avalanche")
	o.Guests = []Guest{visitor(&measured, broken)}
	if _, err := Run(t.Context(), o); !errors.Is(err, broken) || !strings.Contains(err.Error(), "visit/mountain: ") {
		t.Errorf("the error is %v", err)
	}
}

// TestSizesThatPayloadsCannotHave are left out beside batches, and said.
func TestSizesThatPayloadsCannotHave(t *testing.T) {
	var measured []string
	var table bytes.Buffer
	o := tiny(openHost(t))
	o.Guests, o.Out = []Guest{visitor(&measured, nil)}, &table
	o.Groups, o.Rows, o.Bytes = []string{"visit", "copy"}, []string{"hill", "pinned-in"}, []int{8 << 10}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"payloads of 8 KiB were left out: give 2 to 100 bytes", "sizes []"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
}
