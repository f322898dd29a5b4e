//go:build cgo

package cuda

import (
	"encoding/binary"
	"errors"

	"millrace/internal/device"
	"millrace/internal/operator/neardup"
)

// stateName is the name of the only operator with a state that the kernel library has.
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

// StateBytes implements device.Device. Only device memory counts.
func (g *gpu) StateBytes(name string, params []byte, size device.StateSize) (int64, error) {
	p, batch, err := g.stateParameters("state bytes", name, params, size)
	if err != nil {
		return 0, err
	}
	needs, err := g.lib.indexNeeds(NearDuplicateParameters{Bands: p.Bands, Records: p.Records, Batch: batch})
	return needs.device, err
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

// tables implements neardup.Tables with an index on a GPU. Each call waits for the GPU, because its caller needs the result.
type tables struct {
	dev    *gpu
	size   NearDuplicateParameters
	index  *NearDuplicates
	stream device.Stream

	in, result device.HostBuffer // pinned
	used       int               // bytes of in
	records    int               // of the last batch
}

// Sizes of the parts of tables.in, in bytes for each record and key.
const (
	inRecord = 2 * positionBytes     // a label, and alignment
	inKey    = 8 + 4 + positionBytes // a key, its label, and a carried label
	inRest   = 256                   // conflicts, and alignment
)

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
	if t.in, err = g.AllocHost(batch*(inRecord+p.Bands*inKey) + inRest); err != nil {
		return t, err
	}
	t.result, err = g.AllocHost(t.size.ResultBytes(batch))
	return t, err
}

// place returns the next n bytes of pinned memory, and their address on the device.
func (t *tables) place(n int) ([]byte, device.Memory, error) {
	if n == 0 {
		return nil, device.Memory{}, nil
	}
	span := t.in.Slice(t.used, n)
	t.used += (n + positionBytes - 1) / positionBytes * positionBytes
	m, err := t.dev.Map(span)
	return span.Bytes(), m, err
}

// put copies numbers to pinned memory, little-endian.
func (t *tables) put(numbers any) (device.Memory, error) {
	b, m, err := t.place(binary.Size(numbers))
	if err == nil && len(b) > 0 {
		_, err = binary.Encode(b, binary.LittleEndian, numbers)
	}
	return m, err
}

// putPositions copies positions to pinned memory. binary.Encode would use reflection, which takes longer than the index step.
func (t *tables) putPositions(positions []neardup.Position) (device.Memory, error) {
	b, m, err := t.place(len(positions) * positionBytes)
	if err != nil {
		return m, err
	}
	for i, p := range positions {
		at := b[i*positionBytes:][:positionBytes]
		binary.LittleEndian.PutUint64(at, p.Sequence)
		binary.LittleEndian.PutUint64(at[8:], p.Record)
	}
	return m, nil
}

// Apply implements neardup.Tables.
func (t *tables) Apply(positions []neardup.Position, keys []byte) error {
	t.used, t.records = 0, len(positions)
	batch := NearDuplicateBatch{Records: len(positions)}
	b, m, err := t.place(len(keys))
	if err != nil {
		return err
	}
	copy(b, keys)
	batch.Keys = m
	if batch.Positions, err = t.putPositions(positions); err != nil {
		return err
	}
	result := t.result.Slice(0, t.size.ResultBytes(t.records))
	if batch.Result, err = t.dev.Map(result); err != nil {
		return err
	}
	if err = t.index.Apply(batch); err == nil {
		err = t.stream.Synchronize()
	}
	if err != nil {
		return err
	}
	if _, wrong := t.size.Header(result.Bytes()); wrong != 0 {
		return t.dev.errorf("apply", device.ErrInvalid, "%d keys are not of their band: compute them with the operator's kernel", wrong)
	}
	return nil
}

// Result implements neardup.Tables.
func (t *tables) Result(i int) neardup.Result {
	n := t.size.Read(t.result.Bytes()[:t.size.ResultBytes(t.records)], t.records, i)
	r := neardup.Result{Label: neardup.Position(n.Label), Hits: n.Hits, Inserted: n.Inserted, Carries: n.Carries, Relabeled: n.Relabeled}
	for _, p := range n.Also {
		r.Also = append(r.Also, neardup.Position(p))
	}
	for _, c := range n.Carried {
		r.Carried = append(r.Carried, neardup.CarryOver{Label: neardup.Position(c.Label), Bands: c.Bands})
	}
	return r
}

// Undo implements neardup.Tables.
func (t *tables) Undo() error {
	if err := t.index.Undo(); err != nil {
		return err
	}
	return t.stream.Synchronize()
}

// Replay implements neardup.Tables.
func (t *tables) Replay(r *neardup.Inserts) (err error) {
	t.used = 0
	rows := NearDuplicateRows{
		First: r.First, Records: len(r.Labels), Carries: r.Carries, Carried: len(r.CarriedLabels), FirstCarried: r.FirstCarried, Keys: len(r.Keys),
	}
	if rows.Labels, err = t.putPositions(r.Labels); err != nil {
		return err
	}
	if rows.CarriedLabels, err = t.putPositions(r.CarriedLabels); err != nil {
		return err
	}
	if rows.Inserted, err = t.put(r.Keys); err != nil {
		return err
	}
	if rows.KeyLabels, err = t.put(r.KeyLabels); err != nil {
		return err
	}
	conflicts, m, err := t.place(8)
	if err != nil {
		return err
	}
	clear(conflicts)
	rows.Conflicts = m
	if err = t.index.Replay(rows); err == nil {
		err = t.stream.Synchronize()
	}
	if err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(conflicts); n != 0 {
		return t.dev.errorf("replay", device.ErrInvalid, "%d keys of the log contradict the index", n)
	}
	return nil
}

// Bytes implements neardup.Tables.
func (t *tables) Bytes() int64 { return t.index.Bytes() }

// Close implements neardup.Tables. After the first call, it does nothing.
func (t *tables) Close() (err error) {
	if t.index != nil {
		err = t.index.Close()
	}
	if t.stream != nil {
		err = errors.Join(err, t.stream.Close())
	}
	for _, b := range []device.HostBuffer{t.in, t.result} {
		if b.Len() > 0 {
			err = errors.Join(err, t.dev.FreeHost(b))
		}
	}
	t.in, t.result = device.HostBuffer{}, device.HostBuffer{}
	return err
}
