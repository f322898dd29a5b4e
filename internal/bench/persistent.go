package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/operator"
)

// persistent makes a case that sends payloads of bytes through resident kernels, one for each operator.
func (t *target) persistent(ops []operator.Operator, bytes int) *Case {
	c := &Case{Row: report.Row{
		Group: groupLatency, Name: "persistent", Device: t.info.ID, BatchBytes: bytes, Operator: Specs(ops),
	}}
	o := &oneByOne{t: t, ops: ops, bytes: bytes}
	o.open = func(context.Context) (sender, error) {
		s := &residentSender{dev: t.dev}
		if err := s.open(ops, bytes); err != nil {
			return nil, errors.Join(err, s.close())
		}
		return s, nil
	}
	c.Measure = o.measure
	return c
}

// residentSender sends through resident kernels.
type residentSender struct {
	dev   device.Device
	boxes []*mailbox
}

// mailbox is one resident kernel with the buffers that its batches use.
type mailbox struct {
	kernel   device.Kernel
	resident device.Resident
	region   device.HostBuffer
	result   device.HostBuffer
	table    int // where the offsets table lies in the region
	bytes    int // of a payload
	record   int // bytes of its result
}

func (s *residentSender) open(ops []operator.Operator, bytes int) error {
	starter, ok := s.dev.(device.Residenter)
	if !ok {
		return errUnable{fmt.Errorf("%s has no resident kernels", s.dev.Info().ID)}
	}
	shape := device.Shape{Rows: 1, Bytes: bytes, Longest: bytes}
	for _, op := range ops {
		m := &mailbox{table: roundUp(bytes, device.ResidentAlign), bytes: bytes, record: op.Stride()}
		s.boxes = append(s.boxes, m)
		var err error
		if m.kernel, err = s.dev.Kernel(op.Name(), op.Params()); err != nil {
			return err
		}
		if m.region, err = s.dev.AllocHost(m.table + 8); err != nil {
			return err
		}
		if m.result, err = s.dev.AllocHost(m.kernel.Needs(shape).Result); err != nil {
			return err
		}
	}
	// Allocations may wait for resident kernels, so those come last.
	for _, m := range s.boxes {
		var err error
		if m.resident, err = starter.Resident(m.kernel, shape); err != nil {
			return err
		}
	}
	return nil
}

func (s *residentSender) close() error {
	var errs []error
	for _, m := range s.boxes {
		if m.resident != nil {
			errs = append(errs, m.resident.Close())
		}
	}
	for _, m := range s.boxes {
		for _, b := range []device.HostBuffer{m.region, m.result} {
			if b.Len() > 0 {
				errs = append(errs, s.dev.FreeHost(b))
			}
		}
		if m.kernel != nil {
			errs = append(errs, m.kernel.Close())
		}
	}
	return errors.Join(errs...)
}

// send implements sender. The kernels of all operators work at once.
func (s *residentSender) send(ctx context.Context, payload, dst []byte) ([]byte, error) {
	for _, m := range s.boxes {
		if err := m.post(payload); err != nil {
			return dst, err
		}
	}
	for _, m := range s.boxes {
		if err := m.await(ctx); err != nil {
			return dst, err
		}
		dst = append(dst, m.result.Bytes()[:m.record]...)
	}
	return dst, nil
}

// ready implements sender: a mailbox is ready once its batch is done.
func (s *residentSender) ready() {}

func (m *mailbox) post(payload []byte) error {
	region := m.region.Bytes()
	copy(region, payload)
	binary.LittleEndian.PutUint32(region[m.table:], 0)
	binary.LittleEndian.PutUint32(region[m.table+4:], uint32(len(payload)))
	return m.resident.Post(device.Shape{Rows: 1, Bytes: m.bytes, Longest: m.bytes}, m.region, m.table, m.result)
}

// restSpins is how often await asks between giving way to others.
const restSpins = 64

// await asks until the batch is done.
func (m *mailbox) await(ctx context.Context) error {
	for spins := 1; ; spins++ {
		if done, err := m.resident.Done(); done || err != nil {
			return err
		}
		if spins%restSpins == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			runtime.Gosched()
		}
	}
}
