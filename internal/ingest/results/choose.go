package results

import (
	"millrace/internal/filter"
	"millrace/internal/ingest/inflight"
	"millrace/internal/record"
	"millrace/internal/table"
)

// selects reports whether results have only some of the records of a message.
func (e *encoder) selects() bool { return e.o.Filter != nil }

// choose returns the table of the records in the result of a frame. Records that failed are only in results without a filter.
func (e *encoder) choose(f *inflight.Frame) *table.Table {
	if !e.selects() {
		return &f.Table
	}
	f.Chosen, f.LeftOut = f.Chosen[:0], f.LeftOut[:0]
	for range e.o.Filter.Conditions() {
		f.LeftOut = append(f.LeftOut, 0)
	}
	for i := range f.Records() {
		if e.passes(f, i) {
			f.Chosen = append(f.Chosen, uint32(i))
		}
	}
	return f.Table.Select(f.Chosen)
}

// passes reports whether the filter keeps record i. If the filter fails on the record, the record gets the status FilterError.
func (e *encoder) passes(f *inflight.Frame, i int) bool {
	if f.Table.Status(i) != record.OK {
		return false
	}
	keep, failed, err := e.o.Filter.Keep(&filter.Row{
		Number: i, Bytes: len(f.Record(i)), SourceBytes: len(f.Source(i)), Values: f.Table.Values(i), Kept: func(k int) []byte { return f.Kept(i, k) },
	})
	switch {
	case err != nil:
		f.Table.Fail(i, record.FilterError, err.Error())
	case !keep:
		f.LeftOut[failed]++
	}
	return keep
}

func sum(numbers []int) (total int) {
	for _, n := range numbers {
		total += n
	}
	return total
}
