//go:build cgo

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/cuda/fakecuda"
	"millrace/internal/device/host"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// stateBlock returns the parameter block of the kernel of neardup.
func stateBlock(p neardup.Parameters) (block []byte) {
	for _, n := range []uint32{uint32(p.Bands), uint32(p.Rows), uint32(p.K), p.Seed} {
		block = binary.LittleEndian.AppendUint32(block, n)
	}
	return block
}

// checkState applies random batches to states on the GPU and on the CPU, and undoes some of them. Values and logs must be equal. Halfway,
// it replays each log into a new state on the other device and continues with the new states.
func checkState(t *testing.T, gpu device.Device, p neardup.Parameters, batch, records int) {
	t.Helper()
	cpu, err := host.Open(host.Options{Kernels: operator.HostKernels()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cpu.Close() })
	random := rand.New(rand.NewPCG(7, uint64(p.Bands)))
	positions, numbers := nearDuplicates(random, p, records)
	var keys []byte
	for _, n := range numbers {
		keys = binary.LittleEndian.AppendUint64(keys, n)
	}
	devices := []device.Device{gpu, cpu}
	newStates := func() (all []device.State) {
		for _, d := range devices {
			s, err := d.NewState("neardup", stateBlock(p), device.StateSize{Records: p.Records, Batch: batch})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				for range 2 {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
			})
			all = append(all, s)
		}
		return all
	}
	states, logs := newStates(), [2][][]byte{}
	for first := 0; first < records; {
		n := min(1+random.IntN(batch), records-first)
		undone, cut := random.IntN(3) == 0, random.IntN(n+1)
		var values [2][]byte
		for k, s := range states {
			if _, err := s.Apply(nil, nil); err != nil {
				t.Fatal(err)
			}
			if err := s.Undo(); err != nil { // must not undo the previous batch
				t.Fatal(err)
			}
			d, err := s.Apply(positions[first:first+n], keys[first*p.Bands*neardup.KeyBytes:][:n*p.Bands*neardup.KeyBytes])
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				values[k] = d.AppendValue(values[k], i)
			}
			if undone {
				if err := s.Undo(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			for _, part := range [][2]int{{0, cut}, {cut, n}} {
				if logs[k], err = d.AppendLog(logs[k], part[0], part[1], 1<<16); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !bytes.Equal(values[0], values[1]) {
			t.Fatalf("the verdicts on %d records from %d on differ", n, first)
		}
		if !undone {
			first += n
		}
		if first >= records/2 && first-n < records/2 {
			states = newStates()
			for k, s := range states {
				for _, entry := range logs[1-k] {
					if err := s.Replay(entry); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	if !bytes.Equal(bytes.Join(logs[0], nil), bytes.Join(logs[1], nil)) {
		t.Error("the logs differ")
	}
}

// TestState needs a GPU.
func TestState(t *testing.T) {
	library, all := gpus(t)
	for _, info := range all {
		t.Run(info.ID, func(t *testing.T) {
			d := open(t, library, info)
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			checkState(t, d, neardup.Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42, Records: 40000}, 9000, 130000)
			checkState(t, d, neardup.Parameters{Bands: 64, Rows: 2, K: 24, Seed: 42, Records: 3000}, 3000, 9000)
		})
	}
}

// The fake library runs the kernels on fibers. This tests everything except the GPU.
func TestStateOnFibers(t *testing.T) {
	d := openFake(t, "")
	p := neardup.Parameters{Bands: 5, Rows: 2, K: 24, Seed: 42, Records: 60}
	checkState(t, d, p, 50, 250)

	curator := neardup.Parameters{Bands: 20, Rows: 13, K: 24, Seed: 42}
	if n, err := d.StateBytes("neardup", stateBlock(curator), device.StateSize{Records: 108_000_000, Batch: 8192}); err != nil || n.Device > 72e9 {
		t.Errorf("216 million documents need %d bytes, %v, want at most 72 GB", n, err)
	}
	size := device.StateSize{Records: 60, Batch: 50}
	if m, err := d.StateBytes("neardup", stateBlock(p), size); err != nil || m.Device <= 0 || m.Pinned < 50*5*(8+4+16) {
		t.Errorf("a state of %+v, %v", m, err)
	}
	for name, c := range map[string]struct {
		operator string
		block    []byte
		size     device.StateSize
		want     error
	}{
		"unknown":   {"crc32c", nil, size, device.ErrNotFound},
		"bad block": {"neardup", []byte{1}, size, device.ErrInvalid},
		"too large": {"neardup", stateBlock(p), device.StateSize{Records: 60, Batch: 61}, device.ErrInvalid},
		"no bands":  {"neardup", stateBlock(neardup.Parameters{Rows: 2, K: 24}), size, device.ErrInvalid},
	} {
		if _, err := d.NewState(c.operator, c.block, c.size); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// On a lost device, every call of a state reports the loss. No call blames the caller with ErrInvalid.
func TestStateOfALostDevice(t *testing.T) {
	fakecuda.Set(t, "")
	d, err := cuda.Open(cuda.Options{Library: fakecuda.Library(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fakecuda.Set(t, "")
		_ = d.Close() // returns the loss, like closing a state
	})
	p := neardup.Parameters{Bands: 5, Rows: 2, K: 24, Seed: 42, Records: 60}
	s, err := d.NewState("neardup", stateBlock(p), device.StateSize{Records: 60, Batch: 50})
	if err != nil {
		t.Fatal(err)
	}
	positions, numbers := nearDuplicates(rand.New(rand.NewPCG(7, 7)), p, 20)
	var keys []byte
	for _, n := range numbers {
		keys = binary.LittleEndian.AppendUint64(keys, n)
	}
	const half = 10
	cut := half * p.Bands * neardup.KeyBytes
	decisions, err := s.Apply(positions[:half], keys[:cut])
	if err != nil {
		t.Fatal(err)
	}
	log, err := decisions.AppendLog(nil, 0, half, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	fakecuda.Set(t, "call=cudaStreamSynchronize code=719 how=device")
	for i, call := range []func() error{
		func() error { _, err := s.Apply(positions[half:], keys[cut:]); return err },
		func() error { _, err := s.Apply(positions[half:], keys[cut:]); return err },
		s.Undo,
		func() error { return s.Replay(log[0]) },
	} {
		if err := call(); !errors.Is(err, device.ErrLost) {
			t.Errorf("call %d: %v, want %v", i, err, device.ErrLost)
		}
	}
	if _, err := d.NewState("neardup", stateBlock(p), device.StateSize{Records: 60, Batch: 50}); !errors.Is(err, device.ErrLost) {
		t.Errorf("a new state: %v, want %v", err, device.ErrLost)
	}
	if err := s.Close(); !errors.Is(err, device.ErrLost) {
		t.Errorf("Close: %v, want %v", err, device.ErrLost)
	}
}

// A launch in the middle of a batch is refused. The state is then unusable, and a new state replays the log.
func TestStateWithARefusedLaunch(t *testing.T) {
	d := openFake(t, "")
	const half = 10
	p := neardup.Parameters{Bands: 5, Rows: 2, K: 24, Seed: 42, Records: 60}
	newState := func() device.State {
		s, err := d.NewState("neardup", stateBlock(p), device.StateSize{Records: 60, Batch: 50})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	positions, numbers := nearDuplicates(rand.New(rand.NewPCG(7, 7)), p, 2*half)
	var keys []byte
	for _, n := range numbers {
		keys = binary.LittleEndian.AppendUint64(keys, n)
	}
	cut := half * p.Bands * neardup.KeyBytes
	refused := newState()
	decisions, err := refused.Apply(positions[:half], keys[:cut])
	if err != nil {
		t.Fatal(err)
	}
	log, err := decisions.AppendLog(nil, 0, half, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	fakecuda.Set(t, "call=cudaGetLastError code=701 from=3")
	if _, err := refused.Apply(positions[half:], keys[cut:]); !errors.Is(err, device.ErrLaunch) || d.Err() != nil {
		t.Fatalf("a refused launch: got %v, and the device's error is %v", err, d.Err())
	}
	fakecuda.Set(t, "")
	if _, err := refused.Apply(positions[half:], keys[cut:]); !errors.Is(err, device.ErrLaunch) {
		t.Errorf("the state is usable after a refused launch: %v", err)
	}
	next := newState()
	if err := next.Replay(log[0]); err != nil {
		t.Fatal(err)
	}
	if decisions, err = next.Apply(positions[half:], keys[cut:]); err != nil {
		t.Fatal(err)
	}
	reference := neardup.NewReference(p)
	for i, position := range positions {
		want := reference.Apply(position, numbers[i*p.Bands:][:p.Bands]).AppendValue(nil)
		if i < half {
			continue
		}
		if got := decisions.AppendValue(nil, i-half); !bytes.Equal(got, want) {
			t.Errorf("record %d has the value %x, want %x", i, got, want)
		}
	}
	for _, s := range []device.State{refused, next} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
