package cuda_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator"
	"millrace/internal/operator/payloads"
)

// BenchmarkResident measures what one payload of 1 KiB takes from the call in Go to the results in Go: through a
// mailbox, and through a stream with its copies, beside each other on an idle GPU. It reports the median and the 99th
// percentile in microseconds.
func BenchmarkResident(b *testing.B) {
	library, all := gpus(b)
	for _, spec := range []string{"crc32c", "minhash"} {
		l := newLatency(b, open(b, library, all[0]), spec, payloads.Text(1, 1024))
		b.Run(spec+"/launch", func(b *testing.B) { l.measure(b, l.viaStream) })
		b.Run(spec+"/resident", func(b *testing.B) {
			resident, err := l.dev.(device.Residenter).Resident(l.kernel, l.args.Shape)
			l.check(b, err)
			l.measure(b, func() error { return l.viaMailbox(resident) })
			l.check(b, resident.Close())
		})
	}
}

// latency is one payload on its way through a GPU, either way.
type latency struct {
	dev            device.Device
	kernel         device.Kernel
	stream         device.Stream
	region, result device.HostBuffer
	memory         device.Memory // for the region
	table          int
	args           device.LaunchArgs
	want           []byte
}

func newLatency(b *testing.B, dev device.Device, spec string, payload []byte) *latency {
	b.Helper()
	op, err := operator.Parse(spec)
	l := &latency{dev: dev, table: len(payload)}
	l.check(b, err)
	l.want = op.AppendReference(nil, payload)
	l.kernel, err = dev.Kernel(op.Name(), op.Params())
	l.check(b, err)
	l.stream, err = dev.NewStream("latency")
	l.check(b, err)
	shape := device.Shape{Rows: 1, Bytes: len(payload), Longest: len(payload)}
	needs := l.kernel.Needs(shape)
	l.region, err = dev.AllocHost(l.table + 8)
	l.check(b, err)
	l.result, err = dev.AllocHost(needs.Result)
	l.check(b, err)
	l.memory, err = dev.Alloc(l.region.Len())
	l.check(b, err)
	scratch, err := dev.Alloc(max(needs.Scratch, 1))
	l.check(b, err)
	result, err := dev.Alloc(needs.Result)
	l.check(b, err)
	copy(l.region.Bytes(), payload)
	binary.LittleEndian.PutUint32(l.region.Bytes()[l.table+4:], uint32(len(payload)))
	l.args = device.LaunchArgs{
		Shape: shape, Rows: l.memory.Slice(0, len(payload)), Offsets: l.memory.Slice(l.table, 8), Scratch: scratch, Result: result,
	}
	b.Cleanup(func() {
		l.check(b, l.stream.Close())
		l.check(b, l.kernel.Close())
		l.check(b, dev.FreeHost(l.region))
		l.check(b, dev.FreeHost(l.result))
		for _, m := range []device.Memory{l.memory, scratch, result} {
			l.check(b, dev.Free(m))
		}
		l.check(b, dev.Close())
	})
	return l
}

func (l *latency) check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (l *latency) viaStream() error {
	if err := l.stream.CopyIn(l.memory, l.region); err != nil {
		return err
	}
	if err := l.stream.Launch(l.kernel, l.args); err != nil {
		return err
	}
	if err := l.stream.CopyOut(l.result, l.args.Result); err != nil {
		return err
	}
	return l.stream.Synchronize()
}

func (l *latency) viaMailbox(resident device.Resident) error {
	if err := resident.Post(l.args.Shape, l.region, l.table, l.result); err != nil {
		return err
	}
	for {
		if done, err := resident.Done(); done || err != nil {
			return err
		}
	}
}

// measure runs once over and over, after it has seen that the result is right.
func (l *latency) measure(b *testing.B, once func() error) {
	b.Helper()
	for range 100 { // warm
		clear(l.result.Bytes())
		l.check(b, once())
		if !bytes.Equal(l.result.Bytes(), l.want) {
			b.Fatalf("%s gives %x, want %x", l.kernel.Name(), l.result.Bytes(), l.want)
		}
	}
	var took []time.Duration
	for b.Loop() {
		started := time.Now()
		l.check(b, once())
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
}
