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

// visitSuite returns a suite of two rows, as another package would define it. The second row is compared with the
// first. measured receives the name of each measured row.
func visitSuite(measured *[]string, second error) Suite {
	row := func(name string, figure float64, reference bool, err error) *Case {
		return &Case{Row: report.Row{Name: name}, Reference: reference, Measure: func(_ context.Context, c *Case, _ uint64) error {
			*measured = append(*measured, name)
			c.Add("height", "m", figure)
			return err
		}}
	}
	return Suite{
		Name: "visit", Sizes: Sizes{Of: "payload", Min: 2, Max: 100},
		Columns: []Column{
			{Title: "m high", Legend: "above the sea", Cell: FigureCell("height", Number)},
			{Title: "x hill", Cell: FigureCell("height over the hill", times)},
		},
		Experiments: []Experiment{{
			Rows: []Entry{{Name: "hill", Shows: "a hill"}, {Name: "mountain", Shows: "a mountain"}},
			Run: func(ctx context.Context, s *Session) error {
				s.Note("sizes %v", s.Sizes(7, 8))
				hill, mountain := row("hill", 500, true, nil), row("mountain", 2000, false, second)
				if err := s.Measure(ctx, hill, mountain); err != nil {
					return err
				}
				mountain.Compare("height over the hill", "height", hill)
				s.Report(hill, mountain)
				return nil
			},
		}},
	}
}

// TestSuiteOfAnotherPackageIsMeasuredLikeOurs checks that the rounds of such a suite are interleaved. Its rows must be compared, and appear
// in a table and in the report.
func TestSuiteOfAnotherPackageIsMeasuredLikeOurs(t *testing.T) {
	var measured []string
	var table bytes.Buffer
	o := tiny(openHost(t))
	o.Suites, o.Out = []Suite{visitSuite(&measured, nil)}, &table
	o.Groups, o.Bytes = []string{"visit"}, nil
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"hill", "mountain", "hill", "mountain"}; !slices.Equal(measured, want) {
		t.Errorf("measured %v, want %v", measured, want)
	}
	if len(r.Rows) != 2 || r.Rows[1].Group != "visit" || r.Rows[1].Device != "" {
		t.Fatalf("the rows are %+v", r.Rows)
	}
	if f, ok := r.Rows[1].Figure("height over the hill"); !ok || f.Median != 4 || f.N != 2 {
		t.Errorf("the mountain is %+v hills high, want 4 in 2 rounds", f)
	}
	for _, want := range []string{"m high  x hill", "m high: above the sea", "sizes [7 8]", "2,000", "4x"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	all := List(o.Suites...)
	if got := all[len(all)-1]; got != (Entry{Group: "visit", Name: "mountain", Shows: "a mountain"}) {
		t.Errorf("the last row of all is %+v", got)
	}
}

// TestReferencesAndRowsThatCannotBeMeasured checks that the report omits an unrequested reference. A row that can't be measured must have a
// reason, and any other error must end the run.
func TestReferencesAndRowsThatCannotBeMeasured(t *testing.T) {
	var measured []string
	o := tiny(openHost(t))
	o.Groups, o.Rows, o.Bytes = []string{"visit", "latency"}, []string{"mountain"}, []int{4 << 10, 50}
	if err := o.Check(); err == nil || !strings.Contains(err.Error(), `no group "visit"`) {
		t.Errorf("without the suite: %v", err)
	}
	var table bytes.Buffer
	o.Suites, o.Out = []Suite{visitSuite(&measured, Unable("no map of %s", "it"))}, &table
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
	o.Suites = []Suite{visitSuite(&measured, broken)}
	if _, err := Run(t.Context(), o); !errors.Is(err, broken) || !strings.Contains(err.Error(), "visit/mountain: ") {
		t.Errorf("the error is %v", err)
	}
}

// TestSizesThatASuiteCannotHaveAreLeftOut runs the suite after a suite of batches, and expects a note.
func TestSizesThatASuiteCannotHaveAreLeftOut(t *testing.T) {
	var measured []string
	var table bytes.Buffer
	o := tiny(openHost(t))
	o.Suites, o.Out = []Suite{visitSuite(&measured, nil)}, &table
	o.Groups, o.Rows, o.Bytes = []string{"visit", "copy"}, []string{"hill", "pinned-in"}, []int{8 << 10}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Left out: payloads of 8 KiB. Give 2 to 100 bytes.", "sizes []"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
}
