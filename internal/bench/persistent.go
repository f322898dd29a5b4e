package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// HostKernels returns the kernels that the bench needs in addition to the operators' kernels, for devices that use the
// host's memory.
func HostKernels() []device.HostKernel {
	all := []device.HostKernel{mixHost{}}
	for _, k := range operator.HostKernels() {
		all = append(all, persistentHost{k, persistentIdle})
	}
	return all
}

// mailboxWords is the head of a persistent kernel's mailbox. The mailbox is host memory that the kernel can access. The
// payload follows the head. kernels/persistent.cuh has the same layout.
//
// Payloads are numbered from 1. The host writes a payload and its length, and then stores the payload's number in
// posted. The kernel writes the result, and then stores the number in finished.
type mailboxWords struct {
	posted   atomic.Uint64 // number of the last payload, or mailboxStop; written by the host
	bytes    uint32        // length of the payload; written by the host
	_        [52]byte
	finished atomic.Uint64 // number of the last payload whose result is written; written by the kernel
	_        [56]byte
}

// mailboxStop in mailboxWords.posted ends the kernel.
const mailboxStop = ^uint64(0)

const (
	mailboxHead  = int(unsafe.Sizeof(mailboxWords{})) // bytes before the payload
	mailboxAlign = 16                                 // alignment of a mailbox's size in bytes
)

// mailboxBytes returns the size of a mailbox for payloads of at most the given number of bytes.
func mailboxBytes(payload int) int { return mailboxHead + roundUp(payload, mailboxAlign) }

// wordsOf returns the words of the mailbox in memory, which must be aligned to 64 bytes.
func wordsOf(memory []byte) *mailboxWords {
	return (*mailboxWords)(unsafe.Pointer(unsafe.SliceData(memory[:mailboxHead])))
}

// persistentSender sends payloads through persistent kernels, one for each operator.
type persistentSender struct {
	dev   device.Device
	ops   []operator.Operator
	bytes int // maximum size of a payload
	boxes []*mailbox
}

// open implements sender. It creates all mailboxes before it launches their kernels, because an allocation may wait for
// a running persistent kernel.
func (p *persistentSender) open() error {
	mapper, ok := p.dev.(device.Mapper)
	if info := p.dev.Info(); !ok || info.Kind == "sim" { // on a virtual clock no time passes while the host polls
		return Unable("%s has no persistent kernels", info.ID)
	}
	for _, op := range p.ops {
		m := &mailbox{holder: holder{dev: p.dev}, record: op.Stride()}
		p.boxes = append(p.boxes, m)
		if err := m.open(op, mapper, p.bytes); err != nil {
			return err
		}
	}
	for _, m := range p.boxes {
		if err := m.launch(); err != nil {
			return err
		}
	}
	return nil
}

// close implements sender. It stops all kernels before it waits for any of them.
func (p *persistentSender) close() error {
	var errs []error
	for _, m := range p.boxes {
		m.stop()
	}
	for _, m := range p.boxes {
		errs = append(errs, m.close())
	}
	p.boxes = nil
	return errors.Join(errs...)
}

// send implements sender. The kernels of all operators run at once.
func (p *persistentSender) send(ctx context.Context, payload, dst []byte) ([]byte, error) {
	for _, m := range p.boxes {
		m.post(payload)
	}
	for _, m := range p.boxes {
		if err := m.await(ctx); err != nil {
			return dst, err
		}
		dst = append(dst, m.result.Raw()[:m.record]...)
	}
	return dst, nil
}

// prepare implements sender. It does nothing, because a mailbox is ready once its payload is finished.
func (p *persistentSender) prepare() {}

// mailbox is one persistent kernel and the memory that the kernel shares with the host.
type mailbox struct {
	holder
	kernel device.Kernel
	queue  device.Stream // stream that only this kernel uses
	ended  device.Event  // event that is recorded after each launch
	args   device.LaunchArgs
	record int // bytes of a result

	region device.HostBuffer // the words, the payload, and the offsets of the launch's only row
	result device.HostBuffer
	words  *mailboxWords // refers to region
	posted uint64        // number of the last payload
}

// open creates the kernel and allocates its memory for payloads of at most the given number of bytes.
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
	m.region, m.result = m.pinnedBuffer(row+8), m.pinnedBuffer(needs.Result)
	m.ended = hold(&m.holder, func() (device.Event, error) { return m.dev.NewEvent(0) }, device.Event.Close)
	m.queue = m.stream(m.kernel.Name()) // created last, so close first waits until the kernel has ended
	if m.err != nil {
		return m.err
	}
	shared := m.region.Raw()
	clear(shared)
	binary.LittleEndian.PutUint32(shared[row+4:], uint32(row))
	m.words = wordsOf(shared)
	region, err := mapper.Map(m.region)
	if err != nil {
		return err
	}
	m.args.Rows, m.args.Offsets = region.Slice(0, row), region.Slice(row, 8)
	m.args.Result, err = mapper.Map(m.result)
	return err
}

func (m *mailbox) launch() error {
	if err := m.queue.Launch(m.kernel, m.args); err != nil {
		return err
	}
	return m.queue.Record(m.ended)
}

func (m *mailbox) stop() {
	if m.words != nil {
		m.words.posted.Store(mailboxStop)
	}
}

// post passes a payload to the kernel. The previous payload must be finished.
func (m *mailbox) post(payload []byte) {
	copy(m.region.Raw()[mailboxHead:], payload)
	m.words.bytes = uint32(len(payload))
	m.posted++
	m.words.posted.Store(m.posted)
}

// mailboxPatience is the interval of the host's queries to the device while a payload is unfinished. Between queries,
// the host only reads a word in its own memory.
const mailboxPatience = time.Millisecond

// await polls until the kernel has finished the payload. It launches the kernel again if the kernel has stopped after
// an idle period. It returns an error if the device is lost or ctx is done.
func (m *mailbox) await(ctx context.Context) error {
	for since := time.Now(); m.words.finished.Load() != m.posted; runtime.Gosched() {
		if time.Since(since) < mailboxPatience {
			continue
		}
		since = time.Now()
		ended, err := m.ended.Done()
		if err = errors.Join(ctx.Err(), err); err == nil && ended {
			err = m.launch()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// persistentSuffix follows the operator's name in the name of its persistent kernel.
const persistentSuffix = ":persistent"

// persistentIdle is the time without a payload after which a persistent kernel stops. The kernels of GPUs have the same
// limit.
const persistentIdle = time.Second

// persistentHost is an operator's persistent kernel, for devices that use the host's memory. One launch processes
// payloads from a mailbox, its only row, until the host stops the kernel or no payload arrives within idle.
type persistentHost struct {
	device.HostKernel               // the kernel of the operator
	idle              time.Duration // time without a payload after which the kernel stops
}

// Name implements device.HostKernel.
func (p persistentHost) Name() string { return p.HostKernel.Name() + persistentSuffix }

// Bind implements device.HostKernel.
func (p persistentHost) Bind(params []byte) (device.BoundHostKernel, error) {
	bound, err := p.HostKernel.Bind(params)
	return persistentKernel{bound, p.idle}, err
}

type persistentKernel struct {
	device.BoundHostKernel
	idle time.Duration
}

// Needs implements device.BoundHostKernel. It returns the operator's needs for the mailbox's largest payload.
func (p persistentKernel) Needs(mailbox device.Shape) device.Needs {
	payload := max(mailbox.Bytes-mailboxHead, 0)
	return p.BoundHostKernel.Needs(device.Shape{Rows: 1, Bytes: payload, Longest: payload})
}

// Run implements device.BoundHostKernel.
func (p persistentKernel) Run(mailbox []byte, _ []uint32, scratch, result []byte, parallel device.Parallel) error {
	if len(mailbox) < mailboxHead {
		return fmt.Errorf("a mailbox of %d bytes: give at least %d", len(mailbox), mailboxHead)
	}
	words, payloads, offsets := wordsOf(mailbox), mailbox[mailboxHead:], make([]uint32, 2)
	for number := words.next(p.idle); number != mailboxStop; number = words.next(p.idle) {
		offsets[1] = words.bytes
		if err := p.BoundHostKernel.Run(payloads[:words.bytes], offsets, scratch, result, parallel); err != nil {
			return err
		}
		words.finished.Store(number)
	}
	return nil
}

// next waits for a payload and returns its number. It returns mailboxStop if the host has stored that value, or if no
// payload arrives within idle.
func (m *mailboxWords) next(idle time.Duration) uint64 {
	for since := time.Now(); ; runtime.Gosched() {
		if posted := m.posted.Load(); posted != m.finished.Load() {
			return posted
		}
		if time.Since(since) > idle {
			return mailboxStop
		}
	}
}
