package conformance

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"time"

	"millrace/internal/device"
)

// posting is room for batches in host buffers, as a resident kernel takes them, and the batch that is in it.
type posting struct {
	r              *rig
	kernel         device.Kernel
	region, result device.HostBuffer
	shape          device.Shape
	table          int
	poison         byte
}

// posting allocates room for batches up to most. It comes before the resident kernel: see device.Residenter.
func (r *rig) posting(k device.Kernel, most device.Shape) *posting {
	r.Helper()
	r.residenter() // skips where there is none, before anything is made
	region, result := postingSizes(k, most)
	return &posting{r: r, kernel: k, region: r.host(region, 0), result: r.host(result, 0)}
}

func postingSizes(k device.Kernel, most device.Shape) (region, result int) {
	return tableAt(most.Bytes) + 4*(most.Rows+1), k.Needs(most).Result + surplus
}

// tableAt is where the offsets table goes behind so many bytes of rows.
func tableAt(length int) int {
	return (length + device.ResidentAlign - 1) / device.ResidentAlign * device.ResidentAlign
}

func (r *rig) residenter() device.Residenter {
	r.Helper()
	d, ok := r.dev.(device.Residenter)
	if !ok {
		r.Skipf("NOT TESTED: A %s DEVICE HAS NO RESIDENT KERNELS", r.dev.Info().Kind)
	}
	return d
}

// resident starts a resident kernel, to be closed at the end.
func (r *rig) resident(k device.Kernel, most device.Shape) device.Resident {
	r.Helper()
	resident, err := r.residenter().Resident(k, most)
	r.ok("resident "+k.Name(), err)
	r.closeLater("close resident "+k.Name(), resident.Close)
	return resident
}

// write puts rows into the region, and poison into the result.
func (p *posting) write(rows [][]byte, poison byte) {
	p.r.Helper()
	p.shape, p.poison = shapeOf(rows), poison
	p.table = tableAt(p.shape.Bytes)
	region, at := p.region.Bytes(), 0
	binary.LittleEndian.PutUint32(region[p.table:], 0)
	for i, row := range rows {
		at += copy(region[at:], row)
		binary.LittleEndian.PutUint32(region[p.table+4*(i+1):], uint32(at))
	}
	paint(p.result.Bytes(), poison)
}

// post writes rows and posts them.
func (p *posting) post(to device.Resident, rows [][]byte, poison byte) {
	p.r.Helper()
	p.write(rows, poison)
	p.r.ok("post", to.Post(p.shape, p.region, p.table, p.result))
}

// records are the results of a batch that is done, after a look at the memory behind them.
func (p *posting) records(what string) []byte {
	p.r.Helper()
	used := p.kernel.Needs(p.shape).Result
	all := p.result.Bytes()
	behind := all[used:][:surplus]
	p.r.wantBytes(what+": memory behind the result", behind, bytes.Repeat([]byte{p.poison}, surplus))
	return bytes.Clone(all[:used])
}

// awaitResident calls Done until it says true.
func (r *rig) awaitResident(of device.Resident) {
	r.Helper()
	for started := time.Now(); ; runtime.Gosched() {
		done, err := of.Done()
		r.ok("done", err)
		if done {
			return
		}
		if time.Since(started) > patience {
			r.Fatalf("a posted batch is not done after %v", patience)
		}
	}
}

// check runs rows all the way and compares.
func (p *posting) check(to device.Resident, what string, rows [][]byte, poison byte, want []byte) {
	p.r.Helper()
	p.post(to, rows, poison)
	p.r.awaitResident(to)
	p.r.wantRecords(what, p.records(what), want, len(rows))
}
