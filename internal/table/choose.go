package table

import (
	"millrace/internal/filter"
	"millrace/internal/record"
)

// Choose appends the records that results with the filter f have, in order. Without a filter, these are the records that didn't fail.
// It adds the number of records that each condition left out to leftOut, and the number of null records at its end. A record on which
// the filter fails gets the status FilterError. Keep must have been called.
func (t *Table) Choose(f *filter.Filter, chosen []uint32, leftOut []int) []uint32 {
	row := t.newRow()
	for i := range t.Records() {
		if t.passes(f, i, row, leftOut) {
			chosen = append(chosen, uint32(i))
		}
	}
	return chosen
}

// Ask appends the records on which the state of a stateful operator decides, in order: those that have a result and that no condition
// without state leaves out. Otherwise it is like Choose.
func (t *Table) Ask(f *filter.Filter, asked []uint32, leftOut []int) []uint32 {
	if f != nil {
		return t.Choose(f, asked, leftOut)
	}
	for i, status := range t.statuses {
		if status == record.OK {
			asked = append(asked, uint32(i))
		}
	}
	return asked
}

// ChooseDecided appends the records that results have, after Ask has returned asked and the state has decided on them. It adds the number
// of records that the other conditions leave out to leftOut.
func (t *Table) ChooseDecided(f *filter.Filter, asked, chosen []uint32, leftOut []int) []uint32 {
	if f == nil {
		return t.Choose(f, chosen, leftOut)
	}
	row := t.newRow()
	for _, i := range asked {
		if t.keeps(f, filter.WithState, int(i), row, leftOut) {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// passes reports whether Choose appends record i. A null record has no results that a condition could
// examine.
func (t *Table) passes(f *filter.Filter, i int, row *filter.Row, leftOut []int) bool {
	switch status := t.statuses[i]; {
	case f == nil:
		return !status.Failed()
	case status == record.Null:
		leftOut[f.Len()]++
		return false
	case status != record.OK:
		return false
	}
	return t.keeps(f, filter.WithoutState, i, row, leftOut)
}

// newRow returns memory for keeps.
func (t *Table) newRow() *filter.Row {
	row := &filter.Row{}
	row.Kept = func(k int) []byte { return t.fields.kept(row.Number, k) }
	return row
}

// keeps reports whether all conditions of a stage are true for record i, which is OK. It describes the record in row.
func (t *Table) keeps(f *filter.Filter, stage filter.Stage, i int, row *filter.Row, leftOut []int) bool {
	t.collect(i)
	row.Number, row.Bytes, row.SourceBytes, row.Values = i, int(t.lengths[i]), len(t.fields.of.Source(i)), t.results
	keep, failed, err := f.Keep(row, stage)
	switch {
	case err != nil:
		t.Fail(i, record.FilterError, err.Error())
	case !keep:
		leftOut[failed]++
	}
	return keep
}
