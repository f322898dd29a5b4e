package results

import (
	"slices"

	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

// selects reports whether results have only some of the records of a message. A record that failed can't be annotated, or its dead
// letter has it already.
func (e *encoder) selects() bool { return e.o.Filter != nil || e.o.Format == operator.Annotated }

// ask finds the records of a frame on which the state of a stateful operator decides, and returns their number; see table.Table.Ask.
func (e *encoder) ask(f *inflight.Frame) int {
	if f == nil || f.Fault() != nil {
		return 0
	}
	f.LeftOut = f.LeftOut[:0]
	if e.o.Filter != nil {
		f.LeftOut = append(f.LeftOut, make([]int, e.o.Filter.Len()+1)...)
	}
	f.Asked = f.Table.Ask(e.o.Filter, f.Asked[:0], f.LeftOut)
	return len(f.Asked)
}

// choose returns the table of the records in the result of a frame. With a stateful operator, the state must have decided on the records
// that ask has found.
func (e *encoder) choose(f *inflight.Frame) *table.Table {
	if !e.selects() {
		return &f.Table
	}
	if e.stateful < 0 {
		e.ask(f)
	}
	f.Chosen = f.Table.Choose(e.o.Filter, f.Asked, f.Chosen[:0], f.LeftOut)
	return f.Table.Select(f.Chosen)
}

// shrink makes the results of records smaller, because each alone exceeds a message. t is the result of choose, and changes with the
// records. shrink returns false if a result can't become smaller.
func (e *encoder) shrink(f *inflight.Frame, t **table.Table, records []int) bool {
	if !e.selects() {
		return !slices.ContainsFunc(records, func(i int) bool { return !f.Table.Shrink(i) })
	}
	for _, i := range records {
		f.Mark(i, record.TooLarge)
	}
	f.Chosen = slices.DeleteFunc(f.Chosen, func(chosen uint32) bool { return f.Table.Status(int(chosen)) == record.TooLarge })
	*t = f.Table.Select(f.Chosen)
	return true
}
