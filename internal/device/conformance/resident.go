package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"

	"millrace/internal/device"
)

var residentTests = []test{
	{"Nothing", residentNothing},
	{"KnownAnswers", residentKnownAnswers},
	{"ManyBatches", residentManyBatches},
	{"Largest", residentLargest},
	{"DoneMeansDone", residentDoneMeansDone},
	{"OneAtATime", residentOneAtATime},
	{"Bounds", residentBounds},
	{"BadPosts", residentBadPosts},
	{"Kernels", residentKernels},
	{"CloseFinishes", residentCloseFinishes},
	{"TwoAtOnce", residentTwoAtOnce},
	{"OtherStreams", residentOtherStreams},
	{"HeldStream", residentHeldStream},
	{"WholeDeviceWaits", residentWholeDeviceWaits},
	{"Leak", residentLeak},
}

// smallBatch is a bound that most of these tests need no more than.
var smallBatch = device.Shape{Rows: 64, Bytes: 16 << 10, Longest: 16 << 10}

// residentCases are the caller's batches, cut to what a resident kernel takes: it gives what a launch gives.
func residentCases(cases []Case) []test {
	var all []test
	for _, c := range cases {
		all = append(all, test{fmt.Sprintf("LikeLaunch/%s/%s", c.Name, c.Label), func(r *rig) {
			rows, k := cutRows(c.Rows), r.kernel(c.Name, c.Params)
			most := shapeOf(rows)
			p := r.posting(k, most)
			want := r.launch(r.stream("launch"), k, rows, 0x11)
			resident := r.resident(k, most)
			for _, poison := range []byte{0x00, 0xFF} {
				p.check(resident, c.Label, rows, poison, want)
			}
		}})
	}
	return all
}

// cutRows is the first of the rows, and of the last of these its first bytes, as far as a resident kernel takes them.
func cutRows(rows [][]byte) [][]byte {
	var cut [][]byte
	left := device.MostResidentBytes
	for _, row := range rows[:min(len(rows), device.MostResidentRows)] {
		row = row[:min(len(row), left)]
		cut, left = append(cut, row), left-len(row)
	}
	return cut
}

// residentNothing: nothing posted is nothing unfinished, and it can be closed like that.
func residentNothing(r *rig) {
	resident := r.resident(r.kernel("crc32c", nil), smallBatch)
	done, err := resident.Done()
	r.ok("done", err)
	if !done {
		r.Error("a resident kernel with nothing to do is not done")
	}
	r.ok("close", resident.Close())
	r.ok("second close", resident.Close())
	_, err = resident.Done()
	r.fails("done after close", err, device.ErrClosed)
}

func residentKnownAnswers(r *rig) {
	k := r.kernel("crc32c", nil)
	p := r.posting(k, smallBatch)
	resident := r.resident(k, smallBatch)
	want := binary.LittleEndian.AppendUint32(nil, 0xE3069283)
	want = binary.LittleEndian.AppendUint32(want, 0)
	p.check(resident, "the check value and the empty row", [][]byte{[]byte("123456789"), nil}, 0x77, want)
	p.check(resident, "no rows", nil, 0x78, nil)
	p.check(resident, "the check value again", [][]byte{[]byte("123456789"), nil}, 0x79, want)
}

// residentManyBatches: fresh data in the same buffers, batch after batch, is what each result is of.
func residentManyBatches(r *rig) {
	k := r.kernel("crc32c", nil)
	p := r.posting(k, smallBatch)
	resident := r.resident(k, smallBatch)
	for i := range 2000 {
		draws := make([]byte, 1+i%9)
		pattern(draws, uint64(i))
		lengths := make([]int, len(draws))
		for j, draw := range draws {
			lengths[j] = int(draw) << (i % 4)
		}
		rows := bytesOf(uint64(i)*16, lengths...)
		p.check(resident, fmt.Sprintf("batch %d", i), rows, byte(i), crcRecords(rows))
	}
}

// residentLargest: the bounds themselves can be used, in one row and in many.
func residentLargest(r *rig) {
	most := device.Shape{Rows: device.MostResidentRows, Bytes: device.MostResidentBytes, Longest: device.MostResidentBytes}
	k := r.kernel("crc32c", nil)
	p := r.posting(k, most)
	resident := r.resident(k, most)
	lengths := make([]int, most.Rows)
	for i := range lengths {
		lengths[i] = most.Bytes / most.Rows
	}
	for i, rows := range [][][]byte{bytesOf(1, most.Bytes), bytesOf(2, lengths...), make([][]byte, most.Rows)} {
		p.check(resident, fmt.Sprintf("largest batch %d", i), rows, 0x66, crcRecords(rows))
	}
}

// longWork is a batch that takes much longer than a call, and what a launch gives for it.
func (r *rig) longWork() (device.Kernel, [][]byte, []byte) {
	r.Helper()
	k, rows := r.kernel("minhash", minhashParams(24, 256, 1)), text(3, 16<<10)
	return k, rows, r.launch(r.stream("launch"), k, rows, 0)
}

// residentDoneMeansDone: when Done says true, all results are there.
func residentDoneMeansDone(r *rig) {
	r.residenter()
	k, rows, want := r.longWork()
	p := r.posting(k, smallBatch)
	resident := r.resident(k, smallBatch)
	for i := range 3 {
		p.check(resident, "a batch that takes long", rows, byte(i), want)
	}
}

// residentOneAtATime: a second batch is refused until Done has said true of the first, and does it no harm.
func residentOneAtATime(r *rig) {
	k := r.kernel("crc32c", nil)
	p, other := r.posting(k, smallBatch), r.posting(k, smallBatch)
	resident := r.resident(k, smallBatch)
	rows := bytesOf(1, 1024)
	other.write(bytesOf(2, 1024), 0x55)
	for range 3 {
		p.post(resident, rows, 1)
		r.fails("post while one is posted", resident.Post(other.shape, other.region, other.table, other.result), device.ErrInvalid)
		r.awaitResident(resident)
		r.wantRecords("the batch that was posted", p.records("the batch that was posted"), crcRecords(rows), 1)
	}
	r.wantAll("the result of the batch that was refused", other.result, 0x55)
	r.ok("post", resident.Post(other.shape, other.region, other.table, other.result))
	r.awaitResident(resident)
}

// residentBounds: what is too large to be worth it, or makes no sense, is refused at the start.
func residentBounds(r *rig) {
	k, d := r.kernel("crc32c", nil), r.residenter()
	for _, most := range []device.Shape{
		{Rows: device.MostResidentRows + 1, Bytes: 1, Longest: 1},
		{Rows: 1, Bytes: device.MostResidentBytes + 1, Longest: 1},
		{Rows: -1}, {Rows: 1, Bytes: -1}, {Rows: 1, Bytes: 1, Longest: 2}, {Rows: 1, Bytes: 1, Longest: -1},
		{Bytes: 1, Longest: 1},
	} {
		_, err := d.Resident(k, most)
		r.fails(fmt.Sprintf("a resident kernel for %+v", most), err, device.ErrInvalid)
	}
}

// residentBadPosts: what is refused is not posted, and the next batch is none the worse for it.
func residentBadPosts(r *rig) {
	k := r.kernel("crc32c", nil)
	most := device.Shape{Rows: 2, Bytes: 64, Longest: 48}
	p := r.posting(k, device.Shape{Rows: 8, Bytes: 256})
	resident := r.resident(k, most)
	rows := bytesOf(4, 40, 20)
	p.write(rows, 3)
	post := func(what string, shape device.Shape, region device.HostBuffer, table int, result device.HostBuffer) {
		r.Helper()
		r.fails(what, resident.Post(shape, region, table, result), device.ErrInvalid)
	}
	for _, shape := range []device.Shape{
		{Rows: 3, Bytes: 60, Longest: 40}, {Rows: 2, Bytes: 65, Longest: 40}, {Rows: 2, Bytes: 60, Longest: 49},
		{Rows: -1}, {Rows: 2, Bytes: -1}, {Rows: 0, Bytes: 1}, {Rows: 1, Bytes: 1, Longest: 2},
	} {
		post(fmt.Sprintf("shape %+v", shape), shape, p.region, 256, p.result)
	}
	post("a table among the rows", p.shape, p.region, 48, p.result)
	post("a table that is not aligned", p.shape, p.region, p.table+4, p.result)
	post("a table before the region", p.shape, p.region, -16, p.result)
	post("a table far behind the region", p.shape, p.region, 1<<62, p.result)
	post("a table that does not fit", p.shape, p.region.Slice(0, p.table+11), p.table, p.result)
	post("a result that does not fit", p.shape, p.region, p.table, p.result.Slice(0, 7))
	post("no buffers", p.shape, device.HostBuffer{}, p.table, device.HostBuffer{})
	r.wantAll("the result of batches that were refused", p.result, 3)
	p.check(resident, "a batch after the refused ones", rows, 4, crcRecords(rows))
}

// residentKernels: only an open kernel of this device can stay, and it stays open as long.
func residentKernels(r *rig) {
	d, k := r.residenter(), r.kernel("crc32c", nil)
	for _, other := range []device.Kernel{foreignKernel{}, nil} {
		_, err := d.Resident(other, smallBatch)
		r.fails("a foreign kernel", err, device.ErrInvalid)
	}
	closed, err := r.dev.Kernel("crc32c", nil)
	r.ok("kernel", err)
	r.ok("close kernel", closed.Close())
	_, err = d.Resident(closed, smallBatch)
	r.fails("a closed kernel", err, device.ErrClosed)

	p := r.posting(k, smallBatch)
	resident := r.resident(k, smallBatch)
	r.fails("close of a kernel that is resident", k.Close(), device.ErrInvalid)
	rows := bytesOf(5, 100)
	p.check(resident, "a batch after that", rows, 1, crcRecords(rows))
	r.ok("close the resident kernel", resident.Close())
	r.ok("close the kernel", k.Close())
}

// residentCloseFinishes: a batch that is posted is finished when Close returns.
func residentCloseFinishes(r *rig) {
	r.residenter()
	k, rows, want := r.longWork()
	p := r.posting(k, smallBatch)
	resident := r.resident(k, smallBatch)
	p.post(resident, rows, 9)
	r.ok("close", resident.Close())
	r.wantRecords("a batch that Close found posted", p.records("close"), want, len(rows))
	r.fails("post after close", resident.Post(p.shape, p.region, p.table, p.result), device.ErrClosed)
}

// residentTwoAtOnce: resident kernels do not wait for each other.
func residentTwoAtOnce(r *rig) {
	r.residenter()
	crc := r.kernel("crc32c", nil)
	minhash, text, want := r.longWork()
	p, q := r.posting(crc, smallBatch), r.posting(minhash, smallBatch)
	first, second := r.resident(crc, smallBatch), r.resident(minhash, smallBatch)
	for i := range 5 {
		rows := bytesOf(uint64(i), 900, 3)
		q.post(second, text, byte(i))
		p.check(first, "crc32c beside minhash", rows, byte(i), crcRecords(rows))
		r.awaitResident(second)
		r.wantRecords("minhash beside crc32c", q.records("minhash"), want, len(text))
	}
}

// residentOtherStreams: copies and launches on more streams than a GPU has queues go on beside a resident kernel.
func residentOtherStreams(r *rig) {
	k := r.kernel("crc32c", nil)
	p, rows := r.posting(k, smallBatch), bytesOf(6, 1000, 24)
	m, buf := r.memory(4096), r.host(4096, 1)
	b := r.newBatch(k, rows)
	r.warm()
	resident := r.resident(k, smallBatch)
	for i := range 40 {
		s := r.stream(fmt.Sprintf("stream-%d", i))
		p.post(resident, rows, byte(i))
		r.roundTrips(s, buf, m)
		b.enqueue(s, byte(i))
		r.sync(s)
		b.check("a launch beside a resident kernel", crcRecords(rows))
		r.awaitResident(resident)
		r.wantRecords("a batch beside other streams", p.records("beside"), crcRecords(rows), len(rows))
	}
}

// residentHeldStream: batches are finished while streams are held back, and with more of them than a GPU has queues.
func residentHeldStream(r *rig) {
	k := r.kernel("crc32c", nil)
	p, rows := r.posting(k, smallBatch), bytesOf(7, 1024)
	r.warm()
	resident := r.resident(k, smallBatch)
	for i := range 12 {
		open := r.gate(r.stream(fmt.Sprintf("held-%d", i)))
		defer open()
		p.check(resident, "a batch beside held streams", rows, byte(i), crcRecords(rows))
	}
}

// residentWholeDeviceWaits: calls that wait for all the device's work return though a resident kernel is there, and
// it takes batches after them.
func residentWholeDeviceWaits(r *rig) {
	k := r.kernel("crc32c", nil)
	p, rows := r.posting(k, smallBatch), bytesOf(8, 500)
	resident := r.resident(k, smallBatch)
	for i := range 2 {
		p.check(resident, "a batch before", rows, byte(i), crcRecords(rows))
		m, err := r.dev.Alloc(1 << 20)
		r.ok("alloc", err)
		b, err := r.dev.AllocHost(4096)
		r.ok("alloc host", err)
		r.ok("free", r.dev.Free(m))
		r.ok("free host", r.dev.FreeHost(b))
		p.check(resident, "a batch after", rows, byte(i), crcRecords(rows))
	}
}

// residentLeak: a device closes though a resident kernel is at work, and names it.
func residentLeak(r *rig) {
	d := r.residenter()
	k, err := r.dev.Kernel("crc32c", nil)
	r.ok("kernel", err)
	p := &posting{r: r, kernel: k}
	regionBytes, resultBytes := postingSizes(k, smallBatch)
	p.region, err = r.dev.AllocHost(regionBytes)
	r.ok("alloc host", err)
	p.result, err = r.dev.AllocHost(resultBytes)
	r.ok("alloc host", err)
	resident, err := d.Resident(k, smallBatch)
	r.ok("resident", err)
	p.post(resident, bytesOf(9, 1024), 0)
	r.wantLeaks("resident crc32c", "kernel crc32c")
	if _, err := resident.Done(); !errors.Is(err, device.ErrClosed) {
		r.Errorf("done after the device has closed: got %v, want one that wraps %q", err, device.ErrClosed)
	}
	r.ok("close after the device", resident.Close())
	r.ok("close the kernel after the device", k.Close())
}
