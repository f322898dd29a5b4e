package inflight

import (
	"errors"
	"strings"
	"testing"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/unpack"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// TestThePoolDividesItsMemory shows that used memory and memory that is kept for reuse never exceed the pool's share
// in total.
func TestThePoolDividesItsMemory(t *testing.T) {
	t.Parallel()
	pipes := []*streams.Pipeline{testPipeline(t, hostDevice(t), streams.Options{})}
	settings := Options{Costs: NewCosts(operator.JSON, crc32c(t)), Fixed: 10 << 20, Largest: 1 << 20}
	for _, mib := range []int64{24, 32, 64, 2048} {
		settings.Memory = mib << 20
		p, err := NewPool(pipes, settings)
		if err != nil {
			t.Fatalf("%d MiB: %v", mib, err)
		}
		if all := p.memory.limit + p.retained.max + settings.Fixed; all > settings.Memory {
			t.Errorf("all of it together may take %d MiB of %d", all>>20, mib)
		}
	}
	settings.Memory = 12 << 20
	if _, err := NewPool(pipes, settings); !errors.Is(err, ErrMemory) {
		t.Errorf("with too little memory: %v, want ErrMemory", err)
	}
}

// TestTheMemoryCoversALargestFrame shows that a pool's minimum memory grows with the limits of frames, for each
// pipeline. Deliveries in flight leave that much memory free.
func TestTheMemoryCoversALargestFrame(t *testing.T) {
	t.Parallel()
	const payload = 1 << 20
	costs := NewCosts(operator.JSON, crc32c(t))
	pipe := func() *streams.Pipeline { return testPipeline(t, hostDevice(t), streams.Options{}) }
	pipes := []*streams.Pipeline{pipe(), pipe()}
	for name, c := range map[string]struct {
		framing    frame.Framing
		decompress compression.Encoding
		costs      Costs
	}{
		"neither framed nor compressed":   {frame.None, compression.None, costs},
		"framed":                          {frame.NewlineDelimited, compression.None, costs},
		"compressed":                      {frame.None, compression.Gzip, costs},
		"framed and compressed":           {frame.LengthDelimited, compression.Auto, costs},
		"Arrow, which compresses itself":  {frame.Arrow, compression.None, costs},
		"by the headers":                  {frame.Auto, compression.Auto, costs},
		"framed, with compressed results": {frame.NewlineDelimited, compression.None, costs.Compressed()},
	} {
		o := Options{
			Costs: c.costs, Split: frame.Splitter{Framing: c.framing, MaxRecords: 1000, MaxBytes: 64 << 20}, Decompress: c.decompress,
			Fixed: 10 << 20, Largest: payload,
		}
		messages := unpack.Options{Split: o.Split, Decompress: o.Decompress, Results: c.costs.results}
		frames := int64(len(pipes)) * messages.MaxBytes(payload)
		minimum := o.Fixed + o.minimum(payload) + frames
		o.Memory = minimum - 1
		_, err := NewPool(pipes, o)
		if !errors.Is(err, ErrMemory) || strings.Contains(err.Error(), "MILLRACE_FRAME_BYTES") != messages.Splits() {
			t.Errorf("%s: with a byte too little: %v", name, err)
		}
		o.Memory = minimum
		p, err := NewPool(pipes, o)
		if err != nil {
			t.Errorf("%s: with %d bytes: %v", name, minimum, err)
			continue
		}
		if all := p.memory.limit + p.retained.max + o.Fixed + frames; all > o.Memory {
			t.Errorf("%s: with the largest frames all of it may take %d bytes of %d", name, all, o.Memory)
		}
	}
}

type variable struct{ operator.Operator }

func (variable) MaxStrings() (maximum, perByte int)                    { return 100, 2 }
func (variable) AppendStrings(dst, _ []byte, _ []uint32, _ int) []byte { return dst }

// TestByteStringsCostMemory shows that a payload's cost and the minimum memory include its longest byte strings. JSON
// doubles the size of byte strings.
func TestByteStringsCostMemory(t *testing.T) {
	t.Parallel()
	ops := crc32c(t)
	plain, texts := NewCosts(operator.JSON, ops), NewCosts(operator.JSON, []operator.Operator{variable{ops[0]}})
	if got := texts.perPayload() - plain.perPayload(); got < 200 {
		t.Errorf("the byte strings of an empty payload cost %d bytes, want at least 200", got)
	}
	if texts.perByte < 4 || plain.perByte != 0 {
		t.Errorf("a byte costs %d bytes, want at least 4, and without byte strings %d", texts.perByte, plain.perByte)
	}
	const largest = 1 << 20
	with, without := Options{Costs: texts, Largest: largest}, Options{Costs: plain, Largest: largest}
	if got := with.minimum(8<<20) - without.minimum(8<<20); got < 2*4*largest {
		t.Errorf("the least memory grows by %d bytes, want at least %d", got, 2*4*largest)
	}
}
