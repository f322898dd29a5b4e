//go:build cgo

package cuda

import (
	"errors"
	"unsafe"

	"millrace/internal/device"
	"millrace/internal/operator/neardup"
)

// stateName is the name of the kernel library's only stateful operator.
const stateName = "neardup"

// NewState implements device.Device.
func (g *gpu) NewState(name string, params []byte, size device.StateSize) (device.State, error) {
	p, batch, err := g.stateParameters("new state", name, params, size)
	if err != nil {
		return nil, err
	}
	t, err := g.newTables(p, batch)
	if err != nil {
		return nil, err
	}
	return neardup.NewDeviceState(p, batch, t), nil
}

// StateBytes implements device.Device.
func (g *gpu) StateBytes(name string, params []byte, size device.StateSize) (m device.StateMemory, err error) {
	p, batch, err := g.stateParameters("state bytes", name, params, size)
	if err != nil {
		return m, err
	}
	index := NearDuplicateParameters{Bands: p.Bands, Records: p.Records, Batch: batch}
	needs, err := g.lib.indexNeeds(index)
	return device.StateMemory{Device: needs.device, Pinned: int64(index.pinnedBytes())}, err
}

// stateParameters returns the parameters of an index.
func (g *gpu) stateParameters(op, name string, params []byte, size device.StateSize) (p neardup.Parameters, batch int, err error) {
	switch {
	case name != stateName:
		return p, 0, g.errorf(op, device.ErrNotFound, "no operator with a state is called %q", name)
	case !g.lib.hasIndex():
		return p, 0, g.errorf(op, device.ErrUnavailable, "%s has version %d of the ABI: use the kernel library of this version", g.lib.path, g.lib.abi)
	}
	if p, err = neardup.ParseBlock(params, size.Records); err == nil {
		_, err = neardup.Bytes(p, size.Batch)
	}
	if err != nil {
		return p, 0, g.errorf(op, device.ErrInvalid, "%v", err)
	}
	return p, size.Batch, nil
}

// tables implements neardup.Tables with an index on a GPU. Each call waits for the GPU, so the GPU doesn't use the memory between calls.
type tables struct {
	dev    *gpu
	size   NearDuplicateParameters
	index  *NearDuplicates
	stream device.Stream

	pinned    device.HostBuffer // contains all parts
	result    part[byte]
	keys      part[uint64] // keys of a batch, or the keys that Replay inserts
	positions part[device.Position]
	labels    part[uint32] // labels of the keys that Replay inserts
	carried   part[device.Position]
	conflicts part[uint64]

	inserts neardup.Inserts // its slices use the parts' memory
	records int             // number of records in the last batch
}

// part is a part of pinned memory with little-endian elements. The host and the GPU use the same format.
type part[T any] struct {
	elements []T
	memory   device.Memory // the same memory at the GPU's address
}

// bytes returns the elements as bytes.
func (p part[T]) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(p.elements))), p.memory.Bytes)
}

// partAlign is the alignment of parts, in bytes.
const partAlign = 256

// takePart returns the next n elements of pinned memory and adds their size to used, the number of bytes already taken.
func takePart[T any](g *gpu, pinned device.HostBuffer, used *int, n int) (p part[T], err error) {
	size := n * int(unsafe.Sizeof(*new(T)))
	span := pinned.Slice(*used, size)
	*used += (size + partAlign - 1) / partAlign * partAlign
	p.elements = unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(span.Bytes()))), n)
	p.memory, err = g.Map(span)
	return p, err
}

// pinnedBytes returns the size of tables.pinned in bytes.
func (p NearDuplicateParameters) pinnedBytes() int {
	key := neardup.KeyBytes + 4 + positionBytes
	return p.ResultBytes(p.Batch) + p.Batch*(positionBytes+p.Bands*key) + 8 + 6*partAlign
}

func (g *gpu) newTables(p neardup.Parameters, batch int) (t *tables, err error) {
	t = &tables{dev: g, size: NearDuplicateParameters{Bands: p.Bands, Records: p.Records, Batch: batch}}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.stream, err = g.NewStream("near-duplicates"); err != nil {
		return t, err
	}
	if t.index, err = NewNearDuplicates(g, t.stream, t.size); err != nil {
		return t, err
	}
	if t.pinned, err = g.AllocHost(t.size.pinnedBytes()); err != nil {
		return t, err
	}
	return t, t.divide()
}

// divide divides pinned memory into parts.
func (t *tables) divide() error {
	var errs [6]error
	used, batch, keys := 0, t.size.Batch, t.size.Batch*t.size.Bands
	t.result, errs[0] = takePart[byte](t.dev, t.pinned, &used, t.size.ResultBytes(batch))
	t.keys, errs[1] = takePart[uint64](t.dev, t.pinned, &used, keys)
	t.positions, errs[2] = takePart[device.Position](t.dev, t.pinned, &used, batch)
	t.labels, errs[3] = takePart[uint32](t.dev, t.pinned, &used, keys)
	t.carried, errs[4] = takePart[device.Position](t.dev, t.pinned, &used, keys)
	t.conflicts, errs[5] = takePart[uint64](t.dev, t.pinned, &used, 1)
	return errors.Join(errs[:]...)
}

// Apply implements neardup.Tables.
func (t *tables) Apply(positions []neardup.Position, keys []byte) (hits, carries int, err error) {
	t.records = len(positions)
	copy(t.positions.elements, positions)
	copy(t.keys.bytes(), keys)
	if err = t.index.Apply(NearDuplicateBatch{Records: t.records, Keys: t.keys.memory, Positions: t.positions.memory, Result: t.result.memory}); err == nil {
		err = t.stream.Synchronize()
	}
	if err != nil {
		return 0, 0, err
	}
	carried, _ := t.size.Header(t.result.elements)
	return t.size.hits(t.result.elements, t.records), int(carried), nil
}

// Read implements neardup.Tables.
func (t *tables) Read(i int, r *neardup.Result) {
	t.size.Read(t.result.elements, t.records, i, r)
	r.Position, r.Keys = t.positions.elements[i], t.keys.bytes()[i*t.size.Bands*neardup.KeyBytes:][:t.size.Bands*neardup.KeyBytes]
}

// Undo implements neardup.Tables.
func (t *tables) Undo() error {
	if err := t.index.Undo(); err != nil {
		return err
	}
	return t.stream.Synchronize()
}

// Inserts implements neardup.Tables.
func (t *tables) Inserts() *neardup.Inserts {
	t.inserts = neardup.Inserts{
		Labels: t.positions.elements[:0], CarriedLabels: t.carried.elements[:0], Keys: t.keys.elements[:0], KeyLabels: t.labels.elements[:0],
	}
	return &t.inserts
}

// Replay implements neardup.Tables.
func (t *tables) Replay(r *neardup.Inserts) (err error) {
	t.conflicts.elements[0] = 0
	err = t.index.Replay(NearDuplicateRows{
		First: r.First, Records: len(r.Labels), Labels: t.positions.memory,
		Carries: r.Carries, Carried: len(r.CarriedLabels), FirstCarried: r.FirstCarried, CarriedLabels: t.carried.memory,
		Keys: len(r.Keys), Inserted: t.keys.memory, KeyLabels: t.labels.memory, Conflicts: t.conflicts.memory,
	})
	if err == nil {
		err = t.stream.Synchronize()
	}
	if err != nil {
		return err
	}
	if n := t.conflicts.elements[0]; n != 0 {
		return t.dev.errorf("replay", device.ErrInvalid, "%d keys of the log contradict the index", n)
	}
	return nil
}

// Bytes implements neardup.Tables.
func (t *tables) Bytes() int64 { return t.index.Bytes() }

// Close implements neardup.Tables. A second Close returns nil.
func (t *tables) Close() (err error) {
	if t.index != nil {
		err = t.index.Close()
	}
	if t.stream != nil {
		err = errors.Join(err, t.stream.Close())
	}
	if t.pinned.Len() > 0 {
		err = errors.Join(err, t.dev.FreeHost(t.pinned))
	}
	t.pinned = device.HostBuffer{}
	return err
}
