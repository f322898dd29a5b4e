package conformance

import (
	"millrace/internal/device"
)

var commandTests = []test{
	{"LikeCalls", listLikeCalls},
	{"Long", longList},
	{"EndsAtFailure", listEndsAtFailure},
	{"Empty", func(r *rig) { r.ok(r.dev.Enqueue(nil)) }},
	{"OfClosed", listOfClosed},
}

// listLikeCalls checks a list that contains all of a batch's work, on two streams with an event between them.
func listLikeCalls(r *rig) {
	data := text(1, 0, 9, 100, 0, 5000)
	b := r.newBatch(r.kernel("crc32c", nil), data)
	first, second, copied := r.stream("first"), r.stream("second"), r.event()
	b.poison = 0x5a
	r.ok(r.dev.Enqueue([]device.Command{
		{Kind: device.DoFill, Stream: first, Memory: b.scratch, Value: 0x5a},
		{Kind: device.DoFill, Stream: first, Memory: b.result, Value: 0x5a},
		{Kind: device.DoCopyIn, Stream: first, Memory: b.args.Offsets, Host: b.offsets},
		{Kind: device.DoCopyIn, Stream: first, Memory: b.args.Rows, Host: b.rows},
		{Kind: device.DoRecord, Stream: first, Event: copied},
		{Kind: device.DoWait, Stream: second, Event: copied},
		{Kind: device.DoLaunch, Stream: second, Kernel: b.kernel, Args: &b.args},
		{Kind: device.DoCopyOut, Stream: second, Host: b.out.Slice(0, b.result.Bytes), Memory: b.result},
		{Kind: device.DoCopyOut, Stream: second, Host: b.out.Slice(b.result.Bytes, surplus), Memory: b.scratch.Slice(b.needs.Scratch, surplus)},
		{Kind: device.DoNotify, Stream: second, Value: 42},
	}))
	r.wantTokens(42)
	b.check("a list", crcRecords(data))
}

// longList checks that a list may have any length and keeps its order throughout.
func longList(r *rig) {
	const steps = 100
	s, m, b := r.stream("s"), r.memory(1), r.host(steps, 0)
	var list []device.Command
	for i := range steps {
		list = append(list,
			device.Command{Kind: device.DoFill, Stream: s, Memory: m, Value: uint64(i)},
			device.Command{Kind: device.DoCopyOut, Stream: s, Host: b.Slice(i, 1), Memory: m})
	}
	r.ok(r.dev.Enqueue(list), s.Synchronize())
	for i, got := range b.Bytes() {
		if got != byte(i) {
			r.Fatalf("step %d of the list copied out %d", i, got)
		}
	}
}

// listEndsAtFailure checks that the commands before a refused command are carried out, and those after it are not.
func listEndsAtFailure(r *rig) {
	s, m, b := r.stream("s"), r.memory(8), r.host(8, 0)
	r.ok(s.Fill(m, 1))
	err := r.dev.Enqueue([]device.Command{
		{Kind: device.DoFill, Stream: s, Memory: m, Value: 2},
		{Kind: device.DoNotify, Stream: s, Value: 7},
		{Kind: device.DoCopyIn, Stream: s, Memory: m.Slice(0, 4), Host: b}, // does not fit
		{Kind: device.DoFill, Stream: s, Memory: m, Value: 3},
		{Kind: device.DoNotify, Stream: s, Value: 8},
	})
	r.fails("a list with a copy that does not fit", err, device.ErrInvalid)
	r.ok(s.Notify(9))
	r.wantTokens(7, 9)
	r.ok(s.CopyOut(b, m), s.Synchronize())
	r.wantAll("memory", b, 2)
}

// listOfClosed checks that a list with a closed stream or event is refused, as the call would be.
func listOfClosed(r *rig) {
	s, gone, event := r.stream("s"), r.stream("gone"), r.event()
	r.ok(gone.Close(), event.Close())
	r.fails("a closed stream", r.dev.Enqueue([]device.Command{{Kind: device.DoNotify, Stream: gone, Value: 1}}), device.ErrClosed)
	r.fails("a closed event", r.dev.Enqueue([]device.Command{{Kind: device.DoRecord, Stream: s, Event: event}}), device.ErrClosed)
}
