package conformance

import (
	"millrace/internal/device"
)

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

// launchInPlace checks that a launch with rows, offsets and results in host memory gives the same results as one in
// device memory.
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
