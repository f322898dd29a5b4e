package inflight

import (
	"bytes"
	"testing"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// BenchmarkFrame unpacks a frame of 512 KiB with lines of 256 bytes, packs its records into batches, and recycles the
// batches.
func BenchmarkFrame(b *testing.B) {
	body := bytes.Repeat(append(bytes.Repeat([]byte("a"), 255), '\n'), 2048)
	for name, c := range map[string]struct {
		decompress compression.Encoding
		body       []byte
	}{
		"plain": {compression.None, body},
		"zstd":  {compression.Zstd, new(compression.Compressor).Append(nil, compression.Zstd, body)},
	} {
		b.Run(name, func(b *testing.B) {
			pipe := testPipeline(b, hostDevice(b), streams.Options{BatchPayloads: 8192})
			pool, err := NewPool([]*streams.Pipeline{pipe}, Options{
				Costs: NewCosts(operator.JSON, crc32c(b)), Split: frame.Splitter{Framing: frame.NewlineDelimited}, Decompress: c.decompress,
			})
			if err != nil {
				b.Fatal(err)
			}
			msg := &paperMsg{data: c.body}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				d := Delivery{Msg: msg}
				pool.Unpack(&d)
				d.Frame.Open()
				g, err := pool.Reserve(b.Context(), pipe)
				if err != nil {
					b.Fatal(err)
				}
				batch, err := pool.Begin(g, pipe)
				if err != nil {
					b.Fatal(err)
				}
				if !g.Pack(batch, d) {
					b.Fatal("the frame does not fit into a batch")
				}
				batch.Release()
				g.Collected()
				pool.Recycle(g)
			}
		})
	}
}
