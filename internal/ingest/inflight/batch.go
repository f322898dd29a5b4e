package inflight

import (
	"fmt"
	"sync"
	"time"

	"millrace/internal/streams"
)

// Batch is a group: it holds the deliveries of one queue in one batch of a pipeline, from the first payload until the last delivery is
// settled. The pool keeps these deliveries alive, because AckWait applies to each of them.
type Batch struct {
	Pipe       *streams.Pipeline // pipeline that computes the batch
	queue      *Queue            // queue of the deliveries; nil for a batch that was never packed
	mu         sync.Mutex
	Items      []Delivery
	settled    []bool
	spans      []Span        // the rows, in order; nil if each delivery is one row, and the rows follow one another in the pipeline's batch
	start      int           // row of the first delivery in the pipeline's batch, without spans
	unended    Delivery      // delivery of the frame that ends in a later batch and is settled there; otherwise zero
	touched    time.Time     // time when InProgress was last sent for the deliveries
	headers    int           // bytes of the deliveries' headers
	cost       int64         // bytes of memory that the deliveries held when they were added
	payload    int           // bytes in the pipeline's batch
	bytes      int64         // bytes of headers and payloads, once the batch is submitted; see memory.Budget
	kept       int64         // bytes of memory that the batch keeps for reuse
	counted    bool          // whether the queue's window counts the batch
	publishing bool          // whether the window counts the batch as being published
	Bodies     Bodies        // encoded results
	refused    map[int]error // errors of the deliveries that an operator refused or failed on, by index; may be nil

	Record Record // set when the batch has left the device
	Err    error  // reason why the batch has no results; nil if it has results

	// A goroutine that waits for the batch sets the remaining fields, before it submits the batch.
	Completed  chan struct{} // closed once Record, Err and Bodies are set; nil if the batch may be settled in any order
	Finished   chan struct{} // closed when every delivery is settled; nil if no goroutine waits for that
	OnComplete func()        // called when Err is set; may be nil
}

// Pack appends a delivery to the pipeline's batch b and to g. If b has too little space for all records of a frame,
// Pack appends the records that fit and returns false. The caller packs the remaining records into the next batch. Pack
// panics if a message of one record doesn't fit.
func (g *Batch) Pack(b *streams.Batch, d Delivery) (whole bool) {
	row, before := b.Rows(), b.Bytes()
	if f := d.Frame; f != nil {
		whole = g.packFrame(b, row, d)
	} else {
		if !b.Append(d.Msg.Data()) {
			panic(fmt.Sprintf("ingest: payload of %d bytes does not fit a batch that it was measured for", len(d.Msg.Data())))
		}
		g.add(row, d)
		whole = true
	}
	g.payload += b.Bytes() - before
	return whole
}

// PayloadBytes returns the number of bytes of the payloads and records that Pack has appended.
func (g *Batch) PayloadBytes() int { return g.payload }

// Queue returns the queue of the deliveries.
func (g *Batch) Queue() *Queue { return g.queue }

// Encode makes the owner of the deliveries encode their results; see Owner.
func (g *Batch) Encode(completed *streams.Batch) { g.queue.owner.Encode(g, completed) }

// packFrame appends the next records of a frame that fit into b, which has row rows. It returns false if records are left.
func (g *Batch) packFrame(b *streams.Batch, row int, d Delivery) (whole bool) {
	f := d.Frame
	first := f.Cursor.Next()
	rows := f.pack(b)
	if rows == 0 {
		return false
	}
	f.missing.Add(1)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.Items) == 0 {
		g.touched = d.Received
	}
	if f.Cursor.Next() < f.Records() {
		g.addSpan(Span{Row: row, Frame: f, Item: elsewhere, First: first, Rows: rows})
		g.unended = d
		return false
	}
	g.addSpan(Span{Row: row, Frame: f, Item: len(g.Items), First: first, Rows: rows})
	g.append(d)
	f.settled()
	return true
}

// Add appends a delivery whose rows are not in a batch of a pipeline yet.
func (g *Batch) Add(d Delivery) { g.add(g.end(), d) }

// add appends a delivery whose first row in the pipeline's batch is row.
func (g *Batch) add(row int, d Delivery) {
	span := Span{Row: row, Item: len(g.Items), Rows: 1}
	if f := d.Frame; f != nil {
		f.Open()
		span.Frame, span.Rows = f, max(f.Records(), 1)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addSpan(span)
	if len(g.Items) == 0 {
		g.touched = d.Received
	}
	g.append(d)
}

// append appends a delivery to Items. The caller holds g.mu.
func (g *Batch) append(d Delivery) {
	g.Items = append(g.Items, d)
	g.settled = append(g.settled, false)
	g.headers += d.HeaderBytes
	g.cost += d.Cost
	if d.Frame != nil {
		g.cost += d.Frame.Memory.Bytes
	}
}

// Span is a run of rows of a batch. Its rows are either messages of one record each, or records of one frame.
type Span struct {
	Row   int    // index of the first row in the pipeline's batch
	Frame *Frame // nil if the rows are messages of one record each
	Item  int    // index in Items of the first message, or of the frame; elsewhere if the frame's delivery is in another batch
	First int    // index of the first record in the frame
	Rows  int
}

// elsewhere is the Item of a span whose frame's delivery is in another batch.
const elsewhere = -1

// addSpan appends the rows of the next delivery, which is not in Items yet. g has no spans until the first frame, or until the rows of other
// groups lie between its rows.
func (g *Batch) addSpan(s Span) {
	last := len(g.spans) - 1
	switch {
	case last < 0 && s.Frame == nil && len(g.Items) == 0:
		g.start = s.Row
	case last < 0 && s.Frame == nil && s.Row == g.end():
	case last < 0 && len(g.Items) > 0:
		g.spans = append(g.spans, Span{Row: g.start, Rows: len(g.Items)}, s)
	case last >= 0 && s.Frame == nil && g.spans[last].Frame == nil && s.Row == g.end():
		g.spans[last].Rows++
	default:
		g.spans = append(g.spans, s)
	}
}

// end returns the row of the pipeline's batch after the last row of g.
func (g *Batch) end() int {
	if last := len(g.spans) - 1; last >= 0 {
		return g.spans[last].Row + g.spans[last].Rows
	}
	return g.start + len(g.Items)
}

// Spans yields each span with the number of rows before it. A batch without frames that is alone in a pipeline's batch has one span.
func (g *Batch) Spans(yield func(row int, s Span) bool) {
	if len(g.spans) == 0 {
		if len(g.Items) > 0 {
			yield(0, Span{Row: g.start, Rows: len(g.Items)})
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

// Settle marks the i-th delivery as settled, or as moved to another batch. The pool then no longer keeps it alive for
// g.
func (g *Batch) Settle(i int) {
	g.mu.Lock()
	g.settled[i] = true
	g.mu.Unlock()
}

// enter makes the queue's window count the batch until Clear.
func (g *Batch) enter() {
	g.counted = true
	g.queue.window.Enter()
}

// StartPublish marks the batch as being published in its window.
func (g *Batch) StartPublish() {
	if g.counted {
		g.publishing = true
		g.queue.window.StartPublish()
	}
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

// FailOpen fails the frame that ends in a later batch with err, if there is one.
func (g *Batch) FailOpen(err error) {
	if f := g.Open(); f != nil {
		f.Fail(err)
	}
}

// Headroom returns the part of ackWait that is left for the deliveries.
func (g *Batch) Headroom(now time.Time, ackWait time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return ackWait - now.Sub(g.touched)
}

// Result returns the encoded result of the i-th delivery, or the last part if a frame's result has several parts.
func (g *Batch) Result(i int) []byte {
	if f := g.Items[i].Frame; f != nil {
		return f.Parts[len(f.Parts)-1].Body
	}
	return g.Bodies.at(i)
}

// ResultBytes returns the size of the i-th delivery's result in bytes, including all parts of a frame's result.
func (g *Batch) ResultBytes(i int) int {
	if f := g.Items[i].Frame; f != nil {
		return f.ResultBytes()
	}
	return len(g.Bodies.at(i))
}

// Report passes the batch and its record to the observers that aren't nil. Without observers, it allocates no memory.
func (g *Batch) Report(batches BatchObserver, records RecordObserver) {
	if batches != nil {
		batches.BatchEnded(&g.Record, g.Payloads)
	}
	if records != nil {
		records.BatchDone(&g.Record)
	}
}

// Payloads yields the messages with rows in the batch.
func (g *Batch) Payloads(yield func(Payload) bool) {
	for i := range g.Items {
		if !yield(g.Items[i].payload()) {
			return
		}
	}
	if g.unended.Msg != nil {
		yield(g.unended.payload())
	}
}

// Complete sets Record and Err of a group in a batch that has left the device. Then it calls OnComplete and closes Completed. The group may
// be recycled at any time afterwards.
func (g *Batch) Complete(record Record, err error) {
	g.Record, g.Err = record, err
	g.Record.Messages, g.Record.Ended = g.Messages(), len(g.Items)
	onComplete, completed := g.OnComplete, g.Completed // the owner may reuse g after the next line
	if onComplete != nil {
		onComplete()
	}
	if completed != nil {
		close(completed)
	}
}

// Refuse records the reason why an operator refused or failed on the i-th delivery, a single record. The delivery then
// has no result.
func (g *Batch) Refuse(i int, reason error) {
	if g.refused == nil {
		g.refused = map[int]error{}
	}
	g.refused[i] = reason
}

// Refusal returns the reason that Refuse recorded for the i-th delivery, or nil.
func (g *Batch) Refusal(i int) error { return g.refused[i] }

// RefusedCount returns the number of deliveries with a Refusal.
func (g *Batch) RefusedCount() int { return len(g.refused) }

// Find returns the index of the delivery with the given stream sequence, or -1. The deliveries must be in stream order.
func (g *Batch) Find(sequence uint64) int {
	if g == nil {
		return -1
	}
	for i := len(g.Items) - 1; i >= 0 && g.Items[i].Sequence >= sequence; i-- {
		if g.Items[i].Sequence == sequence {
			return i
		}
	}
	return -1
}

// Unsettled returns the indices of the deliveries that are not settled.
func (g *Batch) Unsettled() []int { return g.AppendUnsettled(nil) }

// AppendUnsettled appends the indices of the deliveries that are not settled.
func (g *Batch) AppendUnsettled(items []int) []int {
	for i := range g.Items {
		if !g.settled[i] {
			items = append(items, i)
		}
	}
	return items
}

// HandOver returns a copy of the i-th delivery, and passes the delivery's memory to the caller.
func (g *Batch) HandOver(i int) Delivery {
	d := g.Items[i]
	g.Items[i].Cost, g.Items[i].Frame = 0, nil // the frame is not reused
	return d
}

// IsSettled reports whether the i-th delivery is settled or moved to another batch. Only the settling goroutine may
// call it.
func (g *Batch) IsSettled(i int) bool { return g.settled[i] }

// Clear empties g so that it can be reused.
func (g *Batch) Clear() {
	if g.counted {
		g.queue.window.Leave(g.publishing)
		g.counted, g.publishing = false, false
	}
	g.mu.Lock()
	clear(g.Items) // release the messages
	clear(g.spans)
	g.Items, g.settled, g.spans, g.headers, g.cost = g.Items[:0], g.settled[:0], g.spans[:0], 0, 0
	g.start, g.payload = 0, 0
	g.unended, g.refused = Delivery{}, nil
	g.Bodies.Clear()
	g.Err, g.Completed, g.Finished, g.OnComplete = nil, nil, nil, nil
	g.mu.Unlock()
}

// Bodies holds the encoded results of a batch, back to back.
type Bodies struct {
	Data []byte
	ends []int // end offset of each body
}

// Reserve allocates space for the given number of bytes. Growing step by step would take twice as much memory.
func (b *Bodies) Reserve(bytes int) {
	if cap(b.Data) < bytes {
		b.Data = make([]byte, 0, bytes)
	}
}

// Add adds a body. grown must be Data with the body appended.
func (b *Bodies) Add(grown []byte) {
	b.Data = grown
	b.ends = append(b.ends, len(grown))
}

// at returns the i-th body.
func (b *Bodies) at(i int) []byte {
	start := 0
	if i > 0 {
		start = b.ends[i-1]
	}
	return b.Data[start:b.ends[i]:b.ends[i]]
}

// Clear empties b and keeps its memory.
func (b *Bodies) Clear() { b.Data, b.ends = b.Data[:0], b.ends[:0] }
