//go:build cgo

package cuda_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
	"millrace/internal/device/host"
	"millrace/internal/operator/neardup"
)

// indexRig is an index on a GPU, with pinned memory for one batch.
type indexRig struct {
	t      *testing.T
	dev    device.Device
	stream device.Stream
	size   cuda.NearDuplicateParameters
	index  *cuda.NearDuplicates
	buffer device.HostBuffer
	used   int // bytes of buffer
	result device.HostBuffer
}

func newIndexRig(t *testing.T, dev device.Device, p neardup.Parameters, batch int) *indexRig {
	t.Helper()
	r := &indexRig{t: t, dev: dev, size: cuda.NearDuplicateParameters{Bands: p.Bands, Records: p.Records, Batch: batch}}
	var err error
	r.stream, err = dev.NewStream("index")
	r.check(err)
	r.index, err = cuda.NewNearDuplicates(dev, r.stream, r.size)
	r.check(err)
	r.buffer, err = dev.AllocHost(p.Records*(p.Bands*12+48) + 4096)
	r.check(err)
	r.result, err = dev.AllocHost(r.size.ResultBytes(batch))
	r.check(err)
	t.Cleanup(func() {
		r.check(errors.Join(r.index.Close(), r.stream.Close(), dev.FreeHost(r.buffer), dev.FreeHost(r.result)))
	})
	return r
}

func (r *indexRig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// put copies values to pinned memory.
func (r *indexRig) put(values any) device.Memory {
	r.t.Helper()
	span := r.buffer.Slice(r.used, binary.Size(values))
	_, err := binary.Encode(span.Bytes(), binary.LittleEndian, values)
	r.check(err)
	r.used += (span.Len() + 15) / 16 * 16
	if span.Len() == 0 {
		return device.Memory{}
	}
	return r.mapped(span)
}

func (r *indexRig) mapped(b device.HostBuffer) device.Memory {
	r.t.Helper()
	m, err := r.dev.(device.Mapper).Map(b)
	r.check(err)
	return m
}

// apply returns the results of a batch.
func (r *indexRig) apply(positions []neardup.Position, keys []uint64) (all []neardup.Result) {
	r.t.Helper()
	r.used = 0
	result := r.result.Slice(0, r.size.ResultBytes(len(positions)))
	r.check(r.index.Apply(cuda.NearDuplicateBatch{
		Records: len(positions), Keys: r.put(keys), Positions: r.put(positions), Result: r.mapped(result),
	}))
	r.check(r.stream.Synchronize())
	for i := range positions {
		var one neardup.Result
		r.size.Read(result.Bytes(), len(positions), i, &one)
		all = append(all, one)
	}
	if _, wrong := r.size.Header(result.Bytes()); wrong != 0 {
		r.t.Fatalf("%d keys of wrong bands", wrong)
	}
	return all
}

// replay applies consecutive log rows of one generation. carried is the number of labels that earlier rows carry over.
func (r *indexRig) replay(first int, rows []neardup.Result, keys []uint64, carried int) {
	r.t.Helper()
	r.used = 0
	var labels, carriedLabels []neardup.Position
	var inserted []uint64
	var keyLabels []uint32
	carries := 0
	for i, row := range rows {
		labels = append(labels, row.Label)
		for b := range r.size.Bands {
			if row.Inserted>>b&1 == 0 {
				continue
			}
			label := r.size.Records + first + i
			for k, c := range row.Carried {
				if c.Bands>>b&1 != 0 {
					label = carried + carries + k
				}
			}
			inserted, keyLabels = append(inserted, keys[i*r.size.Bands+b]), append(keyLabels, uint32(label))
		}
		for _, c := range row.Carried {
			carriedLabels = append(carriedLabels, c.Label)
		}
		carries += row.Carries
	}
	conflicts := r.buffer.Slice(r.buffer.Len()-16, 8)
	clear(conflicts.Bytes())
	r.check(r.index.Replay(cuda.NearDuplicateRows{
		First: first, Records: len(rows), Labels: r.put(labels), Carries: carries, Carried: len(carriedLabels),
		FirstCarried: min(carried, r.size.Records), CarriedLabels: r.put(carriedLabels),
		Keys: len(inserted), Inserted: r.put(inserted), KeyLabels: r.put(keyLabels), Conflicts: r.mapped(conflicts),
	}))
	r.check(r.stream.Synchronize())
	if n := binary.LittleEndian.Uint64(conflicts.Bytes()); n != 0 {
		r.t.Fatalf("%d conflicts", n)
	}
}

// nearDuplicates returns the positions and keys of records. Many records share keys with earlier records.
func nearDuplicates(random *rand.Rand, p neardup.Parameters, n int) (positions []neardup.Position, keys []uint64) {
	signature := make([]uint32, p.Bands*p.Rows)
	for i := range n {
		for j := range signature {
			signature[j] = random.Uint32()
		}
		keys = p.AppendKeys(keys, signature)
		own := keys[i*p.Bands:]
		for b := range own {
			if i%3 != 0 && random.IntN(3) > 0 {
				own[b] = keys[(i-1-random.IntN(min(i, 1+i%200)))*p.Bands+b]
			}
		}
		positions = append(positions, neardup.Position{Sequence: uint64(1 + i/7), Record: uint64(i % 7)})
	}
	return positions, keys
}

// sameAsCPU compares results with the CPU's verdicts, and the inserted keys with the CPU's log.
func sameAsCPU(t *testing.T, p neardup.Parameters, cpu *neardup.Index, positions []neardup.Position, keys []uint64, got []neardup.Result) {
	t.Helper()
	verdicts, err := cpu.Apply(positions, keys)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := cpu.AppendLog(nil, 0, len(positions), neardup.MaxEntry)
	if err != nil {
		t.Fatal(err)
	}
	var inserted, logged []byte
	for i, v := range verdicts {
		label := v.DuplicateOf
		if v.Bands == 0 {
			label = positions[i]
		}
		if got[i].Hits != v.Bands || got[i].Label != label || !slices.Equal(got[i].Also, v.Also) {
			t.Fatalf("record %v: got %+v, and the CPU has %+v", positions[i], got[i], v)
		}
		for b := range p.Bands {
			if got[i].Inserted>>b&1 != 0 {
				inserted = binary.LittleEndian.AppendUint64(inserted, keys[i*p.Bands+b])
			}
		}
	}
	const header = 72
	for _, e := range entries {
		rows := int(binary.LittleEndian.Uint32(e[68:]))
		logged = append(logged, e[header:len(e)-rows]...)
	}
	if !reflect.DeepEqual(inserted, logged) {
		t.Fatalf("the inserted keys differ from the CPU's: got %d bytes, want %d", len(inserted), len(logged))
	}
}

// checkIndex compares a GPU's index with a CPU's index over several generations. Then it replays the GPU's results into a second index and
// expects the same results from it.
func checkIndex(t *testing.T, dev device.Device, p neardup.Parameters, batch, records int) {
	random := rand.New(rand.NewPCG(5, uint64(p.Bands)))
	positions, keys := nearDuplicates(random, p, records)
	cpu, err := neardup.New(p, batch)
	if err != nil {
		t.Fatal(err)
	}
	gpu, copied := newIndexRig(t, dev, p, batch), newIndexRig(t, dev, p, batch)
	var rows []neardup.Result
	var carried []int // labels carried over in the generation, up to and including each record
	for first := 0; first < records; {
		end := min(records, first+1+random.IntN(batch))
		if first%2 == 0 {
			gpu.apply(positions[first:end], keys[first*p.Bands:end*p.Bands])
			gpu.check(gpu.index.Undo())
			if err := gpu.index.Undo(); !errors.Is(err, device.ErrInvalid) {
				t.Fatalf("undoing twice: %v", err)
			}
		}
		got := gpu.apply(positions[first:end], keys[first*p.Bands:end*p.Bands])
		sameAsCPU(t, p, cpu, positions[first:end], keys[first*p.Bands:end*p.Bands], got)
		for i, row := range got {
			before := 0
			if (first+i)%p.Records != 0 {
				before = carried[first+i-1]
			}
			carried = append(carried, before+row.Carries)
		}
		rows, first = append(rows, got...), end
	}
	half := p.Records + p.Records/2 // one generation and half of the next
	for first := 0; first < half; first += p.Records / 2 {
		end, before := first+p.Records/2, 0
		if first%p.Records != 0 {
			before = carried[first-1]
		}
		copied.replay(first%p.Records, rows[first:end], keys[first*p.Bands:end*p.Bands], before)
	}
	for first := half; first < records; first += batch {
		end := min(records, first+batch)
		got := copied.apply(positions[first:end], keys[first*p.Bands:end*p.Bands])
		if !reflect.DeepEqual(got, rows[first:end]) {
			t.Fatalf("records from %d on differ after replay", first)
		}
	}
}

// TestIndexOfNearDuplicates needs a GPU.
func TestIndexOfNearDuplicates(t *testing.T) {
	library, all := gpus(t)
	for _, info := range all {
		t.Run(info.ID, func(t *testing.T) {
			d := open(t, library, info)
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			checkIndex(t, d, neardup.Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: 40000}, 9000, 130000)
			checkIndex(t, d, neardup.Parameters{Bands: 64, Rows: 2, K: 24, Seed: 42, Records: 3000}, 3000, 9000)
		})
	}
}

// The fake library runs the kernels on fibers, so everything but the GPU is tested.
func TestIndexOfNearDuplicatesOnFibers(t *testing.T) {
	d := openFake(t, "")
	p := neardup.Parameters{Bands: 5, Rows: 2, K: 24, Seed: 42, Records: 60}
	checkIndex(t, d, p, 50, 170)

	r := newIndexRig(t, d, p, 50)
	if r.index.Bytes() <= 0 {
		t.Errorf("an index of %d bytes", r.index.Bytes())
	}
	for name, b := range map[string]cuda.NearDuplicateBatch{
		"no records":  {},
		"too many":    {Records: 51},
		"no memory":   {Records: 1},
		"a short one": {Records: 1, Keys: device.Memory{Bytes: 39}, Positions: device.Memory{Bytes: 16}, Result: device.Memory{Bytes: 999}},
	} {
		if err := r.index.Apply(b); !errors.Is(err, device.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.index.Replay(cuda.NearDuplicateRows{Records: 1}); !errors.Is(err, device.ErrInvalid) {
		t.Errorf("rows without memory: %v", err)
	}
	word := device.Memory{Bytes: 64}
	if err := r.index.Replay(cuda.NearDuplicateRows{First: 3, Records: 1, Labels: word, Conflicts: word}); !errors.Is(err, device.ErrInvalid) {
		t.Errorf("rows that leave a gap: %v", err)
	}
	fakecuda.Set(t, "call=cudaMemsetAsync code=1")
	if _, err := cuda.NewNearDuplicates(d, r.stream, r.size); !errors.Is(err, device.ErrInvalid) {
		t.Errorf("memory that can't be cleared: %v", err)
	}
	fakecuda.Set(t, "")
}

func TestSizesOfAnIndexAreRefused(t *testing.T) {
	fakecuda.Set(t, "")
	d, err := cuda.Open(cuda.Options{Library: fakecuda.Library(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	s, err := d.NewStream("index")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []cuda.NearDuplicateParameters{
		{Bands: -1, Records: 9, Batch: 9}, {Bands: 0, Records: 9, Batch: 9}, {Bands: 65, Records: 9, Batch: 9},
		{Bands: 3, Records: 0, Batch: 0}, {Bands: 3, Records: 1<<30 + 1, Batch: 9}, {Bands: 3, Records: 9, Batch: 10}, {Bands: 3, Records: 9, Batch: 0},
		{Bands: 3, Records: 1 << 30, Batch: 1<<20 + 1},
	} {
		if n, err := cuda.NewNearDuplicates(d, s, p); !errors.Is(err, device.ErrInvalid) {
			t.Errorf("%+v: %v, %v", p, n, err)
		}
	}
	cpu, err := host.Open(host.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cpu.Close() })
	if _, err := cuda.NewNearDuplicates(cpu, s, cuda.NearDuplicateParameters{Bands: 3, Records: 9, Batch: 9}); !errors.Is(err, device.ErrInvalid) {
		t.Errorf("an index without a GPU: %v", err)
	}
}
