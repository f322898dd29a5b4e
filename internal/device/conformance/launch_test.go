package conformance

import (
	"encoding/binary"

	"millrace/internal/device"
)

var launchTests = []test{
	{"KnownAnswers", knownAnswers},
	{"NoRows", launchNoRows},
	{"EmptyRows", launchEmptyRows},
	{"AllLengths", launchAllLengths},
	{"ManyRows", launchManyRows},
	{"LongRowAmongShort", launchLongRow},
	{"Needs", kernelNeeds},
	{"RowsIndependent", launchRowsIndependent},
	{"MemoryReused", launchMemoryReused},
	{"ScratchFromPool", launchScratchFromPool},
	{"TwoStreams", launchTwoStreams},
}

func (r *rig) wantCRC(what string, rows [][]byte) {
	r.Helper()
	got := r.launch(r.stream("crc"), r.kernel("crc32c", nil), rows, 0xA5)
	r.wantRecords(what, got, crcRecords(rows), len(rows))
}

// knownAnswers checks crc32c of the check string of RFC 3720 and of the empty string.
func knownAnswers(r *rig) {
	got := r.launch(r.stream("s"), r.kernel("crc32c", nil), [][]byte{[]byte("123456789"), nil}, 0x77)
	want := binary.LittleEndian.AppendUint32(nil, 0xE3069283)
	want = binary.LittleEndian.AppendUint32(want, 0)
	r.wantRecords("crc32c", got, want, 2)
}

// launchNoRows checks that a batch without rows has no results.
func launchNoRows(r *rig) {
	s := r.stream("s")
	for _, k := range []device.Kernel{r.kernel("crc32c", nil), r.kernel("minhash", minhashParams(24, 128, 1))} {
		if got := r.launch(s, k, nil, 0x5A); len(got) != 0 {
			r.Errorf("%s gives %d bytes for no rows", k.Name(), len(got))
		}
	}
}

func launchEmptyRows(r *rig) {
	const hashes = 16
	s, minhash := r.stream("s"), r.kernel("minhash", minhashParams(24, hashes, 1))
	for _, count := range []int{1, 2, 31, 8192} {
		rows := make([][]byte, count)
		r.wantCRC("empty rows", rows)
		none := make([]byte, count*hashes*4) // without shingles, the result is zeros
		r.wantRecords("minhash of empty rows", r.launch(s, minhash, rows, 0xFF), none, count)
	}
}

func launchAllLengths(r *rig) {
	lengths := make([]int, 301)
	for i := range lengths {
		lengths[i] = i
	}
	r.wantCRC("rows of 0 to 300 bytes", bytesOf(1, lengths...))
}

// launchManyRows checks a batch with the maximum number of rows. The rows have 0 to 4 KiB, and most of them are short.
func launchManyRows(r *rig) {
	draws := make([]byte, 2*8192)
	pattern(draws, 3)
	lengths := make([]int, 8192)
	for i := range lengths {
		lengths[i] = int(binary.LittleEndian.Uint16(draws[2*i:])) >> (4 + draws[2*i]%9)
	}
	r.wantCRC("8192 rows", bytesOf(2, lengths...))
}

func launchLongRow(r *rig) {
	lengths := make([]int, 2000)
	for i := range lengths {
		lengths[i] = i % 97
	}
	for _, at := range []int{0, 1000, 1999} { // the first, a middle and the last row
		long := append([]int{}, lengths...)
		long[at] = 4<<20 + 3
		r.wantCRC("one long row among short ones", bytesOf(4, long...))
	}
}

// kernelNeeds checks that results have the size that the operators define, and that repeated calls return the same
// needs.
func kernelNeeds(r *rig) {
	crc, minhash := r.kernel("crc32c", nil), r.kernel("minhash", minhashParams(5, 100, 9))
	for _, shape := range []device.Shape{{}, {Rows: 1}, {Rows: 7, Bytes: 1000, Longest: 900}, {Rows: 8192, Bytes: 4 << 20, Longest: 1 << 20}} {
		for k, record := range map[device.Kernel]int{crc: 4, minhash: 400} {
			needs := k.Needs(shape)
			if needs.Result != shape.Rows*record || needs.Scratch < 0 {
				r.Errorf("%s needs %+v for %+v, want %d bytes of result per row", k.Name(), needs, shape, record)
			}
			if again := k.Needs(shape); again != needs {
				r.Errorf("%s needs %+v for %+v, and then %+v", k.Name(), needs, shape, again)
			}
		}
	}
}

// launchRowsIndependent checks that a row's result does not depend on other rows.
func launchRowsIndependent(r *rig) {
	s, k := r.stream("s"), r.kernel("minhash", minhashParams(8, 16, 42))
	rows := text(6, 0, 5, 8, 100, 3000, 40_000, 1)
	var alone []byte
	for _, row := range rows {
		alone = append(alone, r.launch(s, k, [][]byte{row}, 0xC3)...)
	}
	r.wantRecords("minhash of rows together and alone", r.launch(s, k, rows, 0x3C), alone, len(rows))
}

// launchMemoryReused checks that launches on one stream may use the same memory one after another without waiting.
func launchMemoryReused(r *rig) {
	s, k := r.stream("s"), r.kernel("crc32c", nil)
	var all []*batch
	var wants [][]byte
	for i := range 8 {
		rows := bytesOf(uint64(i)*100, 300, 0, 77, 4096)
		b := r.newBatch(k, rows)
		if i > 0 {
			b.args, b.scratch, b.result = all[0].args, all[0].scratch, all[0].result
		}
		all, wants = append(all, b), append(wants, crcRecords(rows))
	}
	open := r.gate(s)
	for i, b := range all {
		b.enqueue(s, byte(i))
	}
	open()
	r.sync(s)
	for i, b := range all {
		b.check("a launch in shared memory", wants[i])
	}
}

// launchScratchFromPool checks launches with scratch that is allocated and freed in stream order around them, as in a
// pipeline.
func launchScratchFromPool(r *rig) {
	s, k, p := r.stream("s"), r.kernel("minhash", minhashParams(24, 16, 1)), r.pool(keepAll)
	rows := text(7, 10, 5000, 0, 300)
	b := r.newBatch(k, rows)
	want := r.launch(s, k, rows, 0)
	for i := range 5 {
		b.scratch = r.take(p, s, b.needs.Scratch+surplus)
		b.args.Scratch = b.scratch.Slice(0, b.needs.Scratch)
		b.enqueue(s, byte(i))
		r.freeAll(p, s, b.scratch)
		b.check("minhash with scratch from a pool", want)
	}
}

func launchTwoStreams(r *rig) {
	k := r.kernel("crc32c", nil)
	streams := []device.Stream{r.stream("a"), r.stream("b"), r.stream("c")}
	var all []*batch
	var wants [][]byte
	for i := range streams {
		rows := bytesOf(uint64(i)*1000, 1<<20, 0, 5, 3000+i)
		all, wants = append(all, r.newBatch(k, rows)), append(wants, crcRecords(rows))
	}
	for round := range 5 {
		for i, s := range streams {
			all[i].enqueue(s, byte(round))
		}
		for i, s := range streams {
			r.sync(s)
			all[i].check("a kernel on several streams", wants[i])
		}
	}
}

var mappedTests = []test{
	{"LaunchInPlace", launchInPlace},
	{"NotABuffer", mapNothing},
}

func (r *rig) mapper() device.Mapper {
	r.Helper()
	m, ok := r.dev.(device.Mapper)
	if !ok {
		r.Skipf("NOT TESTED: THE KERNELS OF A %s DEVICE DO NOT REACH HOST MEMORY", r.dev.Info().Kind)
	}
	return m
}

// launchInPlace checks that a launch in host memory gives the same results as a launch in device memory. Rows, offsets
// and results are all in host memory.
func launchInPlace(r *rig) {
	m, s := r.mapper(), r.stream("s")
	const align = 256
	for _, c := range []struct {
		name   string
		params []byte
	}{{"crc32c", nil}, {"minhash", minhashParams(5, 16, 1)}} {
		k := r.kernel(c.name, c.params)
		data := text(3, 0, 9, 1, 700, 0, 3000, 64)
		want := r.launch(s, k, data, 0x5a)
		b := r.newBatch(k, data)
		out := r.host(b.needs.Result+align, 0x5a)
		mapped := make([]device.Memory, 3)
		for i, buffer := range []device.HostBuffer{b.rows, b.offsets, out} {
			at, err := m.Map(buffer)
			r.ok(err)
			mapped[i] = at
		}
		skip := int(-mapped[2].Addr % align)
		args := b.args
		args.Rows, args.Offsets, args.Result = mapped[0], mapped[1], mapped[2].Slice(skip, b.needs.Result)
		r.ok(s.Launch(k, args), s.Synchronize())
		r.wantRecords(c.name+" in place", out.Slice(skip, b.needs.Result).Bytes(), want, len(data))
	}
}

func mapNothing(r *rig) {
	r.fails("map no memory", failure(r.mapper().Map(device.HostBuffer{})), device.ErrInvalid)
	r.fails("map pageable memory", failure(r.mapper().Map(device.NewHostBuffer(make([]byte, 64), device.Pageable, nil))), device.ErrInvalid)
}
