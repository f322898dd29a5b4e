package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"

	"millrace/internal/device"
	"millrace/internal/operator/neardup"
)

// stateTests check the rules of device.State. Tests of package cuda compare the decisions of a GPU with those of a CPU.
var stateTests = []test{
	{"Decisions", checkDecisions},
	{"Log", checkLog},
	{"Refusals", checkStateRefusals},
}

var stateParameters = neardup.Parameters{Bands: 4, Rows: 2, K: 5, Seed: 1, Records: 50}

var stateSize = device.StateSize{Records: stateParameters.Records, Batch: 20}

// stateBlock returns the parameter block of stateParameters.
func stateBlock() (block []byte) {
	p := stateParameters
	for _, n := range []uint32{uint32(p.Bands), uint32(p.Rows), uint32(p.K), p.Seed} {
		block = binary.LittleEndian.AppendUint32(block, n)
	}
	return block
}

// newState returns an empty state, which the test closes.
func newState(r *rig) device.State {
	r.Helper()
	s, err := r.dev.NewState("neardup", stateBlock(), stateSize)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := s.Close(); err != nil {
			r.Error(err)
		}
	})
	return s
}

// stateStream returns n records and their expected values. Many records share keys with earlier records.
func stateStream(n int) (positions []device.Position, keys []byte, values [][]byte) {
	random, reference := rand.New(rand.NewPCG(3, 3)), neardup.NewReference(stateParameters)
	signature := make([]uint32, stateParameters.Bands*stateParameters.Rows)
	for i := range n {
		for j := range signature {
			signature[j] = random.Uint32N(6)
		}
		own := stateParameters.AppendKeys(nil, signature)
		position := device.Position{Sequence: uint64(1 + i/3), Record: uint64(i % 3)}
		positions, values = append(positions, position), append(values, reference.Apply(position, own).AppendValue(nil))
		for _, key := range own {
			keys = binary.LittleEndian.AppendUint64(keys, key)
		}
	}
	return positions, keys, values
}

const stateKeyBytes = 4 * neardup.KeyBytes // bytes of keys per record

// applyRecords applies the records [first, end) in batches, checks their values, and returns their log.
func applyRecords(r *rig, s device.State, first, end int) (log [][]byte) {
	r.Helper()
	positions, keys, values := stateStream(end)
	for ; first < end; first = min(first+stateSize.Batch, end) {
		n := min(stateSize.Batch, end-first)
		d, err := s.Apply(positions[first:first+n], keys[first*stateKeyBytes:(first+n)*stateKeyBytes])
		if err != nil {
			r.Fatal(err)
		}
		for i := range n {
			if got := d.AppendValue(nil, i); !bytes.Equal(got, values[first+i]) {
				r.Fatalf("record %d has the value %x, want %x", first+i, got, values[first+i])
			}
		}
		if log, err = d.AppendLog(log, 0, n, 1<<16); err != nil {
			r.Fatal(err)
		}
	}
	return log
}

// checkDecisions compares values with the reference over three generations. In between, it undoes a batch and an empty batch.
func checkDecisions(r *rig) {
	s := newState(r)
	applyRecords(r, s, 0, 70)
	positions, keys, _ := stateStream(90)
	before, last := s.Applied()
	if _, err := s.Apply(positions[70:90], keys[70*stateKeyBytes:]); err != nil {
		r.Fatal(err)
	}
	if err := s.Undo(); err != nil {
		r.Fatal(err)
	}
	if records, at := s.Applied(); records != before || at != last || before != 70 {
		r.Errorf("after an undone batch, the state has %d records up to %v, want %d up to %v", records, at, before, last)
	}
	if _, err := s.Apply(nil, nil); err != nil {
		r.Fatal(err)
	}
	if err := s.Undo(); err != nil {
		r.Errorf("Undo of a batch without records: %v", err)
	}
	applyRecords(r, s, 70, 140)
	if got := s.Stats(); got.Records != 90 || got.Generation != 2 || got.Bytes <= 0 || got.Hits == 0 {
		r.Errorf("the stats are %+v, want 90 records, of which 40 in generation 2", got)
	}
}

// checkLog replays a log into a new state and continues with that state.
func checkLog(r *rig) {
	log := applyRecords(r, newState(r), 0, 110)
	s := newState(r)
	for _, entry := range log {
		info, err := s.ReadEntry(entry)
		if err != nil {
			r.Fatal(err)
		}
		if err := s.Replay(entry); err != nil {
			r.Fatal(err)
		}
		if _, last := s.Applied(); last != info.Last {
			r.Errorf("an entry ends at %v, but the state ends at %v", info.Last, last)
		}
	}
	applyRecords(r, s, 110, 160)
	if err := s.Replay(log[0]); !errors.Is(err, device.ErrInvalid) {
		r.Errorf("an entry out of sequence: %v", err)
	}
	if _, err := s.Apply(nil, nil); err == nil {
		r.Error("the state is still usable after a failed replay")
	}
}

// checkStateRefusals checks that refused calls leave the state unchanged.
func checkStateRefusals(r *rig) {
	for name, c := range map[string]struct {
		operator string
		block    []byte
		size     device.StateSize
		want     error
	}{
		"unknown operator":       {"nothing", nil, stateSize, device.ErrNotFound},
		"operator without state": {"crc32c", nil, stateSize, device.ErrNotFound},
		"short block":            {"neardup", []byte{1, 2}, stateSize, device.ErrInvalid},
		"no records":             {"neardup", stateBlock(), device.StateSize{Batch: 1}, device.ErrInvalid},
		"no batch":               {"neardup", stateBlock(), device.StateSize{Records: 9}, device.ErrInvalid},
		"batch above generation": {"neardup", stateBlock(), device.StateSize{Records: 9, Batch: 10}, device.ErrInvalid},
	} {
		if _, err := r.dev.NewState(c.operator, c.block, c.size); !errors.Is(err, c.want) {
			r.Errorf("%s: NewState: %v, want %v", name, err, c.want)
		}
		if _, err := r.dev.StateBytes(c.operator, c.block, c.size); !errors.Is(err, c.want) {
			r.Errorf("%s: StateBytes: %v, want %v", name, err, c.want)
		}
	}
	s := newState(r)
	if err := s.Undo(); !errors.Is(err, device.ErrInvalid) {
		r.Errorf("Undo without a batch: %v", err)
	}
	applyRecords(r, s, 0, 30)
	positions, keys, _ := stateStream(60)
	for name, b := range map[string][2]int{"records again": {29, 31}, "too many records": {30, 51}} {
		if _, err := s.Apply(positions[b[0]:b[1]], keys[b[0]*stateKeyBytes:b[1]*stateKeyBytes]); !errors.Is(err, device.ErrInvalid) {
			r.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Apply(positions[30:32], keys[30*stateKeyBytes:31*stateKeyBytes]); !errors.Is(err, device.ErrInvalid) {
		r.Errorf("missing keys: %v", err)
	}
	wrong := slices.Clone(keys[30*stateKeyBytes : 32*stateKeyBytes])
	copy(wrong[stateKeyBytes:], wrong[neardup.KeyBytes:2*neardup.KeyBytes]) // the second record has a key of band 1 in place of its key of band 0
	if _, err := s.Apply(positions[30:32], wrong); !errors.Is(err, device.ErrInvalid) {
		r.Errorf("a key of another band: %v", err)
	}
	if err := s.Undo(); err != nil {
		r.Errorf("failed calls made the previous batch permanent: %v", err)
	}
	applyRecords(r, s, 20, 60)
	for range 2 {
		if err := s.Close(); err != nil {
			r.Errorf("Close: %v", err)
		}
	}
}
