package table

import (
	"millrace/internal/filter"
	"millrace/internal/record"
)

// Ask appends the records on which stateful operators decide, in order. These records are OK, and pass all conditions of the filter f that
// don't depend on stateful operators. f may be nil. Ask adds the number of records that each condition left out to leftOut. It adds the
// number of null records to the last element. If the filter fails on a record, the record's status becomes FilterError. With a filter, Keep
// must have been called.
func (t *Table) Ask(f *filter.Filter, asked []uint32, leftOut []int) []uint32 {
	row := t.newRow()
	for i := range t.Records() {
		switch t.statuses[i] {
		case record.OK:
			if f == nil || t.passes(f, filter.Stateless, i, row, leftOut) {
				asked = append(asked, uint32(i))
			}
		case record.Null: // a null record has no results that a condition could examine
			if f != nil {
				leftOut[f.Len()]++
			}
		}
	}
	return asked
}

// Choose appends the records that the filter f keeps in the results, in order. asked is the result of Ask. PutValue must have set the
// values of stateful operators for these records. Without a filter, Choose appends the records that didn't fail. It changes leftOut and
// statuses like Ask. chosen may be asked[:0].
func (t *Table) Choose(f *filter.Filter, asked, chosen []uint32, leftOut []int) []uint32 {
	if f == nil {
		for i := range t.Records() {
			if !t.statuses[i].Failed() {
				chosen = append(chosen, uint32(i))
			}
		}
		return chosen
	}
	row := t.newRow()
	for _, i := range asked {
		if t.statuses[i] == record.OK && t.passes(f, filter.Stateful, int(i), row, leftOut) {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// newRow returns a row for passes.
func (t *Table) newRow() *filter.Row {
	row := &filter.Row{}
	row.Kept = func(k int) []byte { return t.fields.kept(row.Number, k) }
	return row
}

// passes reports whether record i, which is OK, passes a stage of the filter. It describes the record in row.
func (t *Table) passes(f *filter.Filter, s filter.Stage, i int, row *filter.Row, leftOut []int) bool {
	if !f.Has(s) {
		return true
	}
	t.collect(i)
	row.Number, row.Bytes, row.SourceBytes, row.Values = i, int(t.lengths[i]), len(t.fields.of.Source(i)), t.results
	keep, failed, err := f.Keep(s, row)
	switch {
	case err != nil:
		t.Fail(i, record.FilterError, err.Error())
	case !keep:
		leftOut[failed]++
	}
	return keep
}
