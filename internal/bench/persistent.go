package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/operator"
)

// persistent returns a case that sends payloads of the given size through persistent kernels, one per operator.
func (t *target) persistent(ops []operator.Operator, bytes int) *Case {
	c := &Case{Row: report.Row{
		Group: groupLatency, Name: "persistent", Device: t.info.ID, BatchBytes: bytes, Operator: Specs(ops),
	}}
	o := &oneByOne{t: t, ops: ops, bytes: bytes}
	o.open = func(context.Context) (sender, error) {
		s := &persistentSender{dev: t.dev}
		if err := s.open(ops, bytes); err != nil {
			return nil, errors.Join(err, s.close())
		}
		return s, nil
	}
	c.Measure = o.measure
	return c
}

// persistentSender sends payloads through persistent kernels.
type persistentSender struct {
	dev   device.Device
	boxes []*mailbox
}

// open creates the mailboxes and launches their kernels. It allocates first, because an allocation may wait for a
// persistent kernel.
func (s *persistentSender) open(ops []operator.Operator, bytes int) error {
	mapper, ok := s.dev.(device.Mapper)
	if info := s.dev.Info(); !ok || info.Kind == "sim" { // on a virtual clock no time passes while the host polls
		return errUnable{fmt.Errorf("%s has no persistent kernels", info.ID)}
	}
	for _, op := range ops {
		m := &mailbox{holder: holder{dev: s.dev}, record: op.Stride()}
		s.boxes = append(s.boxes, m)
		if err := m.open(op, mapper, bytes); err != nil {
			return err
		}
	}
	for _, m := range s.boxes {
		if err := m.launch(); err != nil {
			return err
		}
	}
	return nil
}

// close stops all kernels before it waits for any of them.
func (s *persistentSender) close() error {
	var errs []error
	for _, m := range s.boxes {
		m.stop()
	}
	for _, m := range s.boxes {
		errs = append(errs, m.close())
	}
	return errors.Join(errs...)
}

// send implements sender. The kernels of all operators run at once.
func (s *persistentSender) send(ctx context.Context, payload, dst []byte) ([]byte, error) {
	for _, m := range s.boxes {
		m.post(payload)
	}
	for _, m := range s.boxes {
		if err := m.await(ctx); err != nil {
			return dst, err
		}
		dst = append(dst, m.result.Raw()[:m.record]...)
	}
	return dst, nil
}

// ready implements sender. It does nothing: a mailbox is ready once its payload is finished.
func (s *persistentSender) ready() {}

// mailbox is one persistent kernel, and the memory that the host shares with it while it runs.
type mailbox struct {
	holder
	kernel device.Kernel
	queue  device.Stream // only this kernel runs on it
	ended  device.Event  // recorded after each launch
	args   device.LaunchArgs
	record int // bytes of a result

	region  device.HostBuffer // the words, the payload, and the table of the launch's one row
	result  device.HostBuffer
	words   *mailboxWords // in region
	posted  uint64        // number of the last payload
	checked time.Time     // when the device was last queried for the posted payload; zero until await polls
}

// open allocates the memory for launches. No payload may be larger than bytes.
func (m *mailbox) open(op operator.Operator, mapper device.Mapper, bytes int) error {
	m.kernel = hold(&m.holder, func() (device.Kernel, error) {
		return m.dev.Kernel(op.Name()+persistentSuffix, op.Params())
	}, device.Kernel.Close)
	if m.err != nil {
		return m.err
	}
	row := mailboxBytes(bytes)
	m.args.Shape = device.Shape{Rows: 1, Bytes: row, Longest: row}
	needs := m.kernel.Needs(m.args.Shape)
	if needs.Scratch > 0 {
		m.args.Scratch = m.memory(needs.Scratch)
	}
	m.region, m.result = m.pinned(row+8), m.pinned(needs.Result)
	m.ended = hold(&m.holder, func() (device.Event, error) { return m.dev.NewEvent(0) }, device.Event.Close)
	m.queue = m.stream(m.kernel.Name()) // the last one, because closing it waits until the kernel has ended
	if m.err != nil {
		return m.err
	}
	shared := m.region.Raw()
	clear(shared)
	binary.LittleEndian.PutUint32(shared[row+4:], uint32(row))
	m.words = wordsOf(shared)
	return m.addresses(mapper, row)
}

// addresses sets the addresses at which the kernel accesses host memory.
func (m *mailbox) addresses(mapper device.Mapper, row int) error {
	region, err := mapper.Map(m.region)
	if err != nil {
		return err
	}
	m.args.Rows, m.args.Offsets = region.Slice(0, row), region.Slice(row, 8)
	m.args.Result, err = mapper.Map(m.result)
	return err
}

// launch starts the kernel.
func (m *mailbox) launch() error {
	if err := m.queue.Launch(m.kernel, m.args); err != nil {
		return err
	}
	return m.queue.Record(m.ended)
}

// stop tells the kernel to end.
func (m *mailbox) stop() {
	if m.words != nil {
		m.words.posted.Store(mailboxStop)
	}
}

// post hands a payload to the kernel. The previous payload must be finished.
func (m *mailbox) post(payload []byte) {
	copy(m.region.Raw()[mailboxHead:], payload)
	m.words.bytes = uint32(len(payload))
	m.posted++
	m.words.posted.Store(m.posted)
	m.checked = time.Time{}
}

// mailboxSpins is the number of times that await reads the word before it lets other goroutines run.
const mailboxSpins = 64

// await polls until the kernel has finished the payload.
func (m *mailbox) await(ctx context.Context) error {
	for spins := 1; m.words.finished.Load() != m.posted; spins++ {
		if spins%mailboxSpins != 0 {
			continue
		}
		if err := errors.Join(ctx.Err(), m.check()); err != nil {
			return err
		}
		runtime.Gosched()
	}
	return nil
}

// mailboxPatience is how long a payload may take before the host queries the device about the kernel, and the interval
// between such queries. Until then the host only reads a word in its own memory.
const mailboxPatience = time.Millisecond

// check returns an error if the device is lost, and launches the kernel again if it has stopped after an idle period.
func (m *mailbox) check() error {
	now := time.Now()
	if m.checked.IsZero() {
		m.checked = now
	}
	if now.Sub(m.checked) < mailboxPatience {
		return nil
	}
	m.checked = now
	if ended, err := m.ended.Done(); !ended || err != nil {
		return err
	}
	return m.launch()
}
