package conformance

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"millrace/internal/device"
)

// surplus is the number of bytes beyond the needs of a launch. Tests check that the launch doesn't touch them.
const surplus = 256

// batch is a ragged batch in device memory, with scratch and result memory.
type batch struct {
	r               *rig
	kernel          device.Kernel
	args            device.LaunchArgs
	needs           device.Needs
	offsets, rows   device.HostBuffer
	result, scratch device.Memory // each has surplus bytes at its end
	out             device.HostBuffer
	poison          byte
}

// newBatch allocates everything that a launch over rows needs. It must not be called while a gate is closed.
func (r *rig) newBatch(k device.Kernel, rows [][]byte) *batch {
	r.Helper()
	b := &batch{r: r, kernel: k}
	shape := shapeOf(rows)
	b.needs = k.Needs(shape)
	if b.needs.Scratch < 0 || b.needs.Result < 0 {
		r.Fatalf("%s needs %+v for %+v", k.Name(), b.needs, shape)
	}
	b.offsets = r.host(4*(len(rows)+1), 0)
	b.rows = r.host(shape.Bytes+1, 0).Slice(1, shape.Bytes)
	table, data := b.offsets.Bytes(), b.rows.Bytes()
	at := 0
	for i, row := range rows {
		at += copy(data[at:], row)
		binary.LittleEndian.PutUint32(table[4*(i+1):], uint32(at))
	}
	b.result, b.scratch = r.memory(b.needs.Result+surplus), r.memory(b.needs.Scratch+surplus)
	b.out = r.host(b.needs.Result+2*surplus, 0)
	b.args = device.LaunchArgs{
		Shape:   shape,
		Rows:    r.memory(shape.Bytes+1).Slice(1, shape.Bytes), // rows may start at any address
		Offsets: r.memory(b.offsets.Len()),
		Scratch: b.scratch.Slice(0, b.needs.Scratch),
		Result:  b.result.Slice(0, b.needs.Result),
	}
	return b
}

func shapeOf(rows [][]byte) device.Shape {
	shape := device.Shape{Rows: len(rows)}
	for _, row := range rows {
		shape.Bytes += len(row)
		shape.Longest = max(shape.Longest, len(row))
	}
	return shape
}

// enqueue enqueues all of the batch's work on s. It fills scratch and result with poison before the launch.
func (b *batch) enqueue(s device.Stream, poison byte) {
	b.r.Helper()
	b.poison = poison
	b.r.ok(s.Fill(b.scratch, poison), s.Fill(b.result, poison), s.CopyIn(b.args.Offsets, b.offsets))
	b.r.ok(s.CopyIn(b.args.Rows, b.rows), s.Launch(b.kernel, b.args), s.CopyOut(b.out.Slice(0, b.result.Bytes), b.result))
	edge := b.scratch.Slice(b.needs.Scratch, surplus)
	b.r.ok(s.CopyOut(b.out.Slice(b.result.Bytes, surplus), edge))
}

// records returns the results of a completed batch, after checking the memory behind scratch and result.
func (b *batch) records(what string) []byte {
	b.r.Helper()
	all := b.out.Bytes()
	edges := bytes.Repeat([]byte{b.poison}, 2*surplus)
	b.r.wantBytes(what+": memory behind result and scratch", all[b.needs.Result:], edges)
	return bytes.Clone(all[:b.needs.Result])
}

func (b *batch) check(what string, want []byte) {
	b.r.Helper()
	b.r.wantRecords(what, b.records(what), want, b.args.Shape.Rows)
}

func (r *rig) launch(s device.Stream, k device.Kernel, rows [][]byte, poison byte) []byte {
	r.Helper()
	b := r.newBatch(k, rows)
	b.enqueue(s, poison)
	r.sync(s)
	return b.records(k.Name())
}

func (r *rig) wantRecords(what string, got, want []byte, rows int) {
	r.Helper()
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) || rows == 0 {
		r.Fatalf("%s: got %d bytes of results, want %d", what, len(got), len(want))
	}
	record := len(want) / rows
	for i := range rows {
		if g, w := got[i*record:(i+1)*record], want[i*record:(i+1)*record]; !bytes.Equal(g, w) {
			r.Fatalf("%s: row %d of %d gives %x, want %x", what, i, rows, g, w)
		}
	}
}

// crcRecords returns the results of crc32c, computed by the standard library: four bytes per row, little-endian.
func crcRecords(rows [][]byte) []byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	var all []byte
	for _, row := range rows {
		all = binary.LittleEndian.AppendUint32(all, crc32.Checksum(row, table))
	}
	return all
}

// minhashParams returns minhash's parameter block, three little-endian uint32.
func minhashParams(k, hashes, seed uint32) []byte {
	block := binary.LittleEndian.AppendUint32(nil, k)
	block = binary.LittleEndian.AppendUint32(block, hashes)
	return binary.LittleEndian.AppendUint32(block, seed)
}

// text returns rows of lower-case words with the given lengths in bytes.
func text(seed uint64, lengths ...int) [][]byte {
	rows := bytesOf(seed, lengths...)
	for _, row := range rows {
		for j, c := range row {
			row[j] = "abcdefghijklmnopqrstuvwxyz      "[c%32]
		}
	}
	return rows
}

// bytesOf returns rows of random bytes with the given lengths.
func bytesOf(seed uint64, lengths ...int) [][]byte {
	rows := make([][]byte, len(lengths))
	for i, n := range lengths {
		rows[i] = make([]byte, n)
		pattern(rows[i], seed+uint64(i))
	}
	return rows
}
