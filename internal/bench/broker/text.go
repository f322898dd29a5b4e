package broker

import (
	"context"
	"slices"

	"millrace/internal/bench"
	"millrace/internal/frame"
	"millrace/internal/operator"
)

// textForm is a form with the operators of a row.
type textForm struct {
	operators string
	form
}

// These filters keep about half of the records, because the parity of a text's number of words is random.
const (
	everySecond = "record.number % 2 == 0"
	evenWords   = "quality.words % 2 == 0"
)

// textForms are the forms of JSON lines to measure.
var textForms = []textForm{
	{"crc32c", lines("", operator.JSON, "")},
	{"crc32c", lines(textField, operator.JSON, "")},
	{"crc32c", lines("", operator.Arrow, "")},
	{"crc32c", lines(textField, operator.Arrow, "")},
	{"crc32c", lines(textField, operator.Arrow, everySecond)},
	{"crc32c", lines(textField, operator.Annotated, everySecond)},
	{"quality", lines(textField, operator.Arrow, "")},
	{"quality", lines(textField, operator.Annotated, evenWords)},
}

// nullForms are the forms to measure with the null worker, which doesn't read the messages.
var nullForms = []form{
	lines("", operator.Arrow, ""),
	lines(textField, operator.Annotated, everySecond),
}

// lines returns the form of JSON lines with a field, a format of results and a filter.
func lines(field string, format operator.Format, filter string) form {
	return form{framing: frame.NewlineDelimited, documents: true, field: field, format: format, filter: filter}
}

// lineBytes is the default size of a JSON line.
const lineBytes = 512

// runText measures Millrace and the null worker with JSON lines, for one line size after another.
func (b *Bench) runText(ctx context.Context, session *bench.Session, s *server) error {
	session.Note("Messages have about %d KiB of JSON lines. A line is a record, and MB/s are bytes of lines.", b.frameBytes>>10)
	for _, size := range session.Sizes(lineBytes) {
		var shared, exclusive []*bench.Case // one case per form
		for _, t := range b.textForms {
			f, ops := t.filled(size, b.frameBytes), bench.Parse(t.operators)
			shared = append(shared, s.rate(session, b.millraceKind(session, rowTextShared, false, ops), f))
			exclusive = append(exclusive, s.rate(session, b.millraceKind(session, rowTextExclusive, true, ops), f))
		}
		var null []*bench.Case
		for _, f := range nullForms {
			null = append(null, s.rate(session, b.plainKind(session, rowTextNull, nil), f.filled(size, b.frameBytes)))
		}
		all := slices.Concat(null, shared, exclusive)
		if err := session.Measure(ctx, all...); err != nil {
			return err
		}
		for _, cases := range [][]*bench.Case{shared, exclusive} {
			b.compareText(cases, null)
		}
		session.Report(all...)
	}
	return nil
}

// sameResults reports whether results of both forms have the same size, if the operators are the same.
func (f form) sameResults(other form) bool {
	return f.format == other.format && f.filter == other.filter
}

// compareText adds the ratios to the null worker, to the cases with whole lines, and to the cases with all records in Arrow. cases has one
// case per form, and null has one per null form.
func (b *Bench) compareText(cases, null []*bench.Case) {
	for i, t := range b.textForms {
		for k, f := range nullForms {
			if t.operators == nullSize && t.sameResults(f) {
				cases[i].Compare(figureOverNull, figureRecords, null[k])
			}
		}
		whole, arrow := t, t
		whole.field = ""
		arrow.format, arrow.filter = operator.Arrow, ""
		compare := func(figure string, other textForm) {
			if k := slices.Index(b.textForms, other); k >= 0 && k != i {
				cases[i].Compare(figure, figureRecords, cases[k])
			}
		}
		compare(figureOverLines, whole)
		compare(figureOverArrow, arrow)
	}
}
