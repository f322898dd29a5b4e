package inflight

import (
	"slices"

	"millrace/internal/streams"
)

// This file has the rows of a failed batch that are computed again; see package quarantine.

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

// NewPart returns an empty batch for rows of g.
func (g *Batch) NewPart() *Batch { return &Batch{queue: g.queue, Completed: make(chan struct{})} }

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
	g.addSpan(Span{Row: g.end(), Frame: f, Item: elsewhere, First: i, Rows: 1})
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
