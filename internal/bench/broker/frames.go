package broker

import (
	"context"
	"slices"

	"millrace/internal/bench"
	"millrace/internal/compression"
	"millrace/internal/frame"
)

// The names of rows with messages of several records.
const (
	rowFramesBatch     = "frames-null-batch"
	rowFramesPinned    = "frames-null-pinned"
	rowFramesShared    = "frames-shared"
	rowFramesExclusive = "frames-exclusive"
)

// frameEntries are the rows that show what messages of several records are worth.
var frameEntries = []bench.Entry{
	{Name: rowFramesBatch, Shows: "null-batch with messages of 512 KiB that hold records of 256 bytes: newline-delimited, also with zstd, length-delimited, Arrow"},
	{Name: rowFramesPinned, Shows: "null-pinned with the same messages"},
	{Name: rowFramesShared, Shows: "millrace-shared with crc32c and the same messages, and with one record per message"},
	{Name: rowFramesExclusive, Shows: "millrace-exclusive with crc32c and the same messages, and with one record per message"},
}

// externalEntry is the row of another program.
var externalEntry = bench.Entry{
	Name: rowExternal, Shows: "the program of --external with the same newline-delimited, uncompressed messages; its results are counted and not compared",
}

// frameEntries returns the rows that this bench has.
func (b *Bench) frameEntries() []bench.Entry {
	if len(b.o.External) == 0 {
		return frameEntries
	}
	return append(slices.Clip(frameEntries), externalEntry)
}

const (
	// usualFrameBytes is the size of a frame before compression.
	usualFrameBytes = 512 << 10

	// frameRecordBytes is the default size of a record.
	frameRecordBytes = 256
)

// forms are the framings and compressions that the rows compare. Compressed frames and another program are compared with the first.
var forms = []struct {
	framing  frame.Framing
	encoding compression.Encoding
}{
	{frame.NewlineDelimited, compression.None},
	{frame.NewlineDelimited, compression.Zstd},
	{frame.LengthDelimited, compression.None},
	{frame.Arrow, compression.None},
}

// runFrames measures workers with frames, with records of one size after the other.
func (b *Bench) runFrames(ctx context.Context, session *bench.Session) error {
	s, err := b.open(ctx, session)
	if err != nil {
		return err
	}
	for _, size := range session.Sizes(frameRecordBytes) {
		if err := s.runFramesOf(ctx, session, size, b.frameBytes, b.o.External); err != nil {
			return err
		}
	}
	return nil
}

// framed holds the cases of the workers with the same messages.
type framed struct {
	nullShared, nullExclusive, shared, exclusive *bench.Case
	external                                     *bench.Case // nil for none
}

// runFramesOf measures workers with one record per message and with each form of frames. program is another program to compare with, or
// empty.
func (s *server) runFramesOf(ctx context.Context, session *bench.Session, size, frameBytes int, program []string) error {
	ops, nulls := bench.Parse(operatorLists[0]), s.connections.nulls(session)
	shared := s.connections.sharedDelivery(session, ops).named(rowFramesShared)
	exclusive := s.connections.exclusiveDelivery(session, ops).named(rowFramesExclusive)
	measured := func(k kind, f form) *bench.Case {
		c := s.rateOf(session, k, size, figureRecords, f.content)
		c.Row.Framing, c.Row.Compression = f.framing.String(), f.encoding.String()
		return c
	}
	alone := form{size: size, records: 1}
	single := framed{shared: measured(shared, alone), exclusive: measured(exclusive, alone)}
	all := []*bench.Case{single.shared, single.exclusive}
	var byForm []framed
	for i, f := range forms {
		f := formOf(f.framing, f.encoding, size, frameBytes)
		c := framed{
			nullShared: measured(nulls[1].named(rowFramesBatch), f), nullExclusive: measured(nulls[3].named(rowFramesPinned), f),
			shared: measured(shared, f), exclusive: measured(exclusive, f),
		}
		all = append(all, c.nullShared, c.nullExclusive, c.shared, c.exclusive)
		if len(program) > 0 && i == 0 {
			c.external = measured(externalKind(program), f)
			all = append(all, c.external)
		}
		byForm = append(byForm, c)
	}
	session.Note("Frames have about %d KiB before compression. Results of frames are Arrow streams, and those of single records are JSON.", frameBytes>>10)
	if err := session.Measure(ctx, all...); err != nil {
		return err
	}
	for i, c := range byForm {
		c.shared.Compare(figureOverNull, figureRecords, c.nullShared)
		c.exclusive.Compare(figureOverNull, figureRecords, c.nullExclusive)
		c.shared.Compare(figureOverSingle, figureRecords, single.shared)
		c.exclusive.Compare(figureOverSingle, figureRecords, single.exclusive)
		if c.external != nil {
			c.shared.Compare(figureOverExternal, figureRecords, c.external)
			c.exclusive.Compare(figureOverExternal, figureRecords, c.external)
		}
		if forms[i].encoding != compression.None {
			c.compareUncompressed(byForm[0])
		}
	}
	session.Report(all...)
	return nil
}

// compareUncompressed compares each worker with itself without compression.
func (c framed) compareUncompressed(other framed) {
	c.nullShared.Compare(figureOverUncompressed, figureRecords, other.nullShared)
	c.nullExclusive.Compare(figureOverUncompressed, figureRecords, other.nullExclusive)
	c.shared.Compare(figureOverUncompressed, figureRecords, other.shared)
	c.exclusive.Compare(figureOverUncompressed, figureRecords, other.exclusive)
}

// content returns the messages of this form for a seed.
func (f form) content(seed uint64) content {
	if f.framing == frame.None {
		return unframed{seed, f.size}
	}
	return newFrames(seed, f)
}
