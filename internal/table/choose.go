package table

import (
	"millrace/internal/filter"
	"millrace/internal/record"
)

// Choose appends the records that results with the filter f have, in order. Without a filter, these are the records that didn't fail.
// It adds the number of records that each condition left out to leftOut, and the number of null records at its end. A record on which
// the filter fails gets the status FilterError. Keep must have been called.
func (t *Table) Choose(f *filter.Filter, chosen []uint32, leftOut []int) []uint32 {
	for i := range t.Records() {
		if t.passes(f, i, leftOut) {
			chosen = append(chosen, uint32(i))
		}
	}
	return chosen
}

// passes reports whether Choose appends record i. A null record has no results that a condition could examine.
func (t *Table) passes(f *filter.Filter, i int, leftOut []int) bool {
	switch status := t.statuses[i]; {
	case f == nil:
		return !status.Failed()
	case status == record.Null:
		leftOut[f.Len()]++
		return false
	case status != record.OK:
		return false
	}
	t.collect(i)
	keep, failed, err := f.Keep(&filter.Row{
		Number: i, Bytes: int(t.lengths[i]), SourceBytes: len(t.fields.of.Source(i)), Values: t.results,
		Kept: func(k int) []byte { return t.fields.kept(i, k) },
	})
	switch {
	case err != nil:
		t.Fail(i, record.FilterError, err.Error())
	case !keep:
		leftOut[failed]++
	}
	return keep
}
