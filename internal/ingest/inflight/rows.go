package inflight

import (
	"slices"

	"millrace/internal/streams"
)

// Span is a run of rows of a batch. Its rows are either messages of one record each, or records of one frame.
type Span struct {
	Frame *Frame // nil if the rows are messages of one record each
	Item  int    // index in Items of the first message, or of the frame; elsewhere if the frame's delivery is in another batch
	First int    // index of the first record in the frame
	Rows  int
}

// elsewhere is the Item of a span whose frame's delivery is in another batch.
const elsewhere = -1

// Spans yields each span with the index of its first row. A batch without frames has one span.
func (g *Batch) Spans(yield func(row int, s Span) bool) {
	if len(g.spans) == 0 {
		if len(g.Items) > 0 {
			yield(0, Span{Rows: len(g.Items)})
		}
		return
	}
	row := 0
	for _, s := range g.spans {
		if !yield(row, s) {
			return
		}
		row += s.Rows
	}
}

// item returns the index in Items of the i-th row's delivery, or elsewhere.
func (s Span) item(i int) int {
	if s.Frame == nil {
		return s.Item + i
	}
	return s.Item
}

// RowsOf returns the rows of the deliveries with the given indices, which must be increasing.
func (g *Batch) RowsOf(items []int) (rows []int) {
	for first, s := range g.Spans {
		for i := range s.Rows {
			if _, ok := slices.BinarySearch(items, s.item(i)); ok {
				rows = append(rows, first+i)
			}
		}
	}
	return rows
}

// ItemsOf returns the indices of the deliveries that rows belong to, without duplicates. open reports whether a row
// belongs to a frame whose delivery is in another batch.
func (g *Batch) ItemsOf(rows []int) (items []int, open bool) {
	for _, row := range rows {
		s, at := g.row(row)
		switch item := s.item(at); {
		case item == elsewhere:
			open = true
		case len(items) == 0 || items[len(items)-1] != item:
			items = append(items, item)
		}
	}
	return items, open
}

// Rows returns the number of rows.
func (g *Batch) Rows() (rows int) {
	for _, s := range g.Spans {
		rows += s.Rows
	}
	return rows
}

// row returns the span that contains a row, and the row's position in the span.
func (g *Batch) row(row int) (s Span, at int) {
	for first, s := range g.Spans {
		if row < first+s.Rows {
			return s, row - first
		}
	}
	panic("ingest: a batch has no such row")
}

// Row returns the frame that a row belongs to, and the index of the record in the frame. For a message of one record,
// it returns nil and the message's index in Items.
func (g *Batch) Row(row int) (f *Frame, index int) {
	s, at := g.row(row)
	if s.Frame == nil {
		return nil, s.Item + at
	}
	return s.Frame, s.First + at
}

// Source returns the delivery that a row belongs to. If the frame ends in a later batch, the caller must not settle the
// delivery.
func (g *Batch) Source(row int) *Delivery {
	s, at := g.row(row)
	switch {
	case s.Frame == nil:
		return &g.Items[s.Item+at]
	case s.Item == elsewhere:
		return &s.Frame.d
	}
	return &g.Items[s.Item]
}

// UnsettledRows returns the rows of unsettled deliveries, and of a frame that ends in a later batch.
func (g *Batch) UnsettledRows() (rows []int) {
	for row := range g.Rows() {
		rows = append(rows, row)
	}
	return g.Unfinished(rows)
}

// Unfinished returns the given rows without the rows of settled deliveries. It keeps rows of a frame that ends in a
// later batch.
func (g *Batch) Unfinished(rows []int) (left []int) {
	for _, row := range rows {
		s, at := g.row(row)
		if item := s.item(at); item == elsewhere || !g.settled[item] {
			left = append(left, row)
		}
	}
	return left
}

// PackRows appends rows to b and to part, until one doesn't fit. It returns the number of appended rows. The deliveries stay in g.
func (g *Batch) PackRows(b *streams.Batch, part *Batch, rows []int) (n int) {
	for _, row := range rows {
		f, i := g.Row(row)
		switch {
		case f == nil && b.Append(g.Items[i].Msg.Data()):
			part.Add(g.Items[i])
		case f != nil && b.Append(f.payload(i)):
			part.addRecord(f, i)
		default:
			return n
		}
		n++
	}
	return n
}

// Collected records that the tables of the frames contain the results of this batch. It also removes the frame that
// ends in a later batch, because the later batch may settle that frame and reuse its buffers.
func (g *Batch) Collected() {
	open := g.leaveOpen()
	for _, s := range g.spans {
		if s.Frame != nil {
			s.Frame.settled()
		}
	}
	if open != nil {
		open.settled()
	}
}

// leaveOpen removes the span of the frame that ends in a later batch. It returns the frame, or nil.
func (g *Batch) leaveOpen() *Frame {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := g.Open()
	if open != nil {
		last := len(g.spans) - 1
		g.spans[last] = Span{}
		g.spans = g.spans[:last]
	}
	return open
}

// CollectedRows is like Collected for a batch that was computed in pieces. rows are the rows with results. They must
// include all rows of a frame that ends in a later batch.
func (g *Batch) CollectedRows(rows []int) {
	var last *Frame
	open := g.Open()
	for _, row := range rows {
		if s, _ := g.row(row); s.Frame != nil && s.Frame != last && s.Frame != open {
			last = s.Frame
			last.settled()
		}
	}
	if open != nil {
		g.leaveOpen()
		open.settled()
	}
}

// addRecord appends record i of a frame as a row. The frame's delivery stays in another batch.
func (g *Batch) addRecord(f *Frame, i int) {
	f.missing.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addSpan(Span{Frame: f, Item: elsewhere, First: i, Rows: 1})
	g.unended = f.d
}

// DropRecords records that the records from PackRows have no results.
func (g *Batch) DropRecords() {
	for _, s := range g.spans {
		if s.Frame != nil && s.Item == elsewhere {
			s.Frame.missing.Add(-1) // missing stays above 0, because it also counts the failed batch
		}
	}
}

// Messages returns the number of messages with rows in the batch.
func (g *Batch) Messages() int {
	if g.unended.Msg != nil {
		return len(g.Items) + 1
	}
	return len(g.Items)
}

// Open returns the frame that ends in a later batch, or nil.
func (g *Batch) Open() *Frame {
	if n := len(g.spans); n > 0 && g.spans[n-1].Item == elsewhere {
		return g.spans[n-1].Frame
	}
	return nil
}

// FailOpen fails the frame that ends in a later batch with err, if there is one.
func (g *Batch) FailOpen(err error) {
	if f := g.Open(); f != nil {
		f.Fail(err)
	}
}

// addSpan appends the rows of the next delivery, which is not in Items yet. Until the first frame, g has no spans.
func (g *Batch) addSpan(s Span) {
	switch last := len(g.spans) - 1; {
	case last < 0 && s.Frame == nil:
	case last < 0 && len(g.Items) > 0:
		g.spans = append(g.spans, Span{Rows: len(g.Items)}, s)
	case last >= 0 && s.Frame == nil && g.spans[last].Frame == nil:
		g.spans[last].Rows++
	default:
		g.spans = append(g.spans, s)
	}
}
