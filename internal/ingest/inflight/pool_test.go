package inflight

import (
	"errors"
	"strings"
	"testing"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestThePoolDividesItsMemory: used memory and memory that is kept for reuse never exceed the pool's share together.
func TestThePoolDividesItsMemory(t *testing.T) {
	t.Parallel()
	pipes := []*streams.Pipeline{testPipeline(t, hostDevice(t), streams.Config{})}
	settings := Settings{Costs: NewCosts(operator.JSON, crc32c(t)), Fixed: 10 << 20, Largest: 1 << 20}
	for _, mib := range []int64{24, 32, 64, 2048} {
		settings.Memory = mib << 20
		p, err := NewPool(pipes, settings)
		if err != nil {
			t.Fatalf("%d MiB: %v", mib, err)
		}
		if all := p.memory.limit + p.retained.most + settings.Fixed; all > settings.Memory {
			t.Errorf("all of it together may take %d MiB of %d", all>>20, mib)
		}
	}
	settings.Memory = 12 << 20
	if _, err := NewPool(pipes, settings); !errors.Is(err, ErrMemory) {
		t.Errorf("with too little memory: %v, want ErrMemory", err)
	}
}

// TestTheMemoryCoversALargestFrame: the least memory with which a pool starts grows with the limits of frames, once for each pipeline,
// and deliveries in flight leave that much free.
func TestTheMemoryCoversALargestFrame(t *testing.T) {
	t.Parallel()
	const payload, most, records = 1 << 20, 64 << 20, 1000
	costs := NewCosts(operator.JSON, crc32c(t))
	pipe := func() *streams.Pipeline { return testPipeline(t, hostDevice(t), streams.Config{}) }
	pipes := []*streams.Pipeline{pipe(), pipe()}
	for name, c := range map[string]struct {
		framing    frame.Framing
		decompress compression.Encoding
		costs      Costs
		records    int
		want       int64 // memory of one frame
	}{
		"neither framed nor compressed":   {frame.None, compression.None, costs, records, 0},
		"framed":                          {frame.NewlineDelimited, compression.None, costs, records, costs.frame(records)},
		"framed, at most a record a byte": {frame.VarintLengthDelimited, compression.None, costs, 2 * payload, costs.frame(payload + 1)},
		"compressed":                      {frame.None, compression.Gzip, costs, records, most + costs.frame(1)},
		"framed and compressed":           {frame.LengthDelimited, compression.Auto, costs, records, most + costs.frame(records)},
		"Arrow, which compresses itself":  {frame.Arrow, compression.None, costs, records, most + costs.frame(records)},
		"by the headers":                  {frame.Auto, compression.Auto, costs, records, 2*most + costs.frame(records)},
		"framed, with compressed results": {frame.NewlineDelimited, compression.None, costs.Compressed(), records, costs.Compressed().frame(records)},
	} {
		s := Settings{
			Costs: c.costs, Split: frame.Splitter{Framing: c.framing, MaxRecords: c.records, MaxBytes: most}, Decompress: c.decompress,
			Fixed: 10 << 20, Largest: payload,
		}
		if got := s.frame(); got != c.want {
			t.Errorf("%s: a frame takes %d bytes, want %d", name, got, c.want)
		}
		least := s.Fixed + s.least(1<<20) + int64(len(pipes))*c.want
		s.Memory = least - 1
		_, err := NewPool(pipes, s)
		if !errors.Is(err, ErrMemory) || strings.Contains(err.Error(), "MILLRACE_FRAME_BYTES") != (c.want > 0) {
			t.Errorf("%s: with a byte too little: %v", name, err)
		}
		s.Memory = least
		p, err := NewPool(pipes, s)
		if err != nil {
			t.Errorf("%s: with %d bytes: %v", name, least, err)
			continue
		}
		if all := p.memory.limit + p.retained.most + s.Fixed + int64(len(pipes))*c.want; all > s.Memory {
			t.Errorf("%s: with the largest frames all of it may take %d bytes of %d", name, all, s.Memory)
		}
	}
	if plain, twice := costs.frame(records), costs.Compressed().frame(records); twice <= plain {
		t.Errorf("compressed results take %d bytes, and others %d", twice, plain)
	}
}
