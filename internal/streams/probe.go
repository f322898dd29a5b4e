package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// ProbeTimeout bounds a whole Probe: the device's check, the wait for a free batch, and the batches themselves.
const ProbeTimeout = 30 * time.Second

// KindProbe is the kind of device error that an Observer is told of where a Probe failed, before the loss that it means.
const KindProbe = "probe"

// knownText is longer than any shingle and has characters of one to four bytes.
var knownText = strings.Repeat("The quick brown fox jumps over the lazy dog. Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. "+
	"いろはにほへと ちりぬるを 🦊 0123456789. ", 16)

// knownPayloads are the payloads of a probe, the most telling first: a pipeline with tight bounds takes only some.
func knownPayloads() [][]byte {
	zeros := make([]byte, 512)
	return [][]byte{[]byte("123456789"), []byte(knownText), {}, zeros, []byte(knownText[:100]), {0xff}, []byte(knownText[1:2049])}
}

// known is what a probe computes: payloads, and for each operator the records that its reference gives for them.
type known struct {
	once     sync.Once
	payloads [][]byte
	want     [][]byte // by operator: one record for each payload, back to back
}

// probing is where the batch of a probe comes back, so that nobody takes it for payloads. Guarded by the pipeline's mutex.
type probing struct {
	back      chan struct{} // receives once the batch is done; room for one
	abandoned bool          // the probe has given up, so the batch releases itself
}

// Probe asks the device whether it still computes right. It has the device check itself, then runs payloads of known
// content through this pipeline and its operators, and compares the results with the operators' reference. Where the
// kernels reach host memory it runs them a second time, with copies. It works beside other batches, takes one of the
// pipeline's batches for its time, and gives up after ProbeTimeout or with ctx.
//
// It returns nil if every result is right. If the operators fail on the payloads or give wrong results the device counts as
// lost: the error wraps device.ErrLost and is the pipeline's Err from then on. Any other error is no verdict: the device
// was out of memory, or had not answered in time (device.ErrNotReady), or ctx ended.
//
// A probe has no Record that an Observer sees. The time that engines spend on it counts as busy, which they are.
func (p *Pipeline) Probe(ctx context.Context) error { return p.ProbeUnder(ctx, noLock{}) }

type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// ProbeUnder is Probe with each of its batches on the device under lock. It takes lock only once it has a batch, as whoever
// submits one does, so that nobody holds lock and waits for a batch.
func (p *Pipeline) ProbeUnder(ctx context.Context, lock sync.Locker) error {
	bounded, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	err := p.probe(bounded, lock)
	switch {
	case err == nil:
		return nil
	case p.Err() != nil:
		return p.Err()
	case ctx.Err() != nil:
		return ctx.Err()
	case bounded.Err() != nil:
		return device.Errorf("probe", p.info.ID, device.ErrNotReady, "no answer within %v: %v", ProbeTimeout, err)
	case errors.Is(err, device.ErrOutOfMemory), errors.Is(err, device.ErrNotReady):
		return err
	}
	p.reportKind(KindProbe)
	return p.Lose("probe", err)
}

// Lose ends the pipeline because its device does not work, though the device itself does not say so: everything in flight
// comes back with the error that it returns, which wraps device.ErrLost and is Err from then on. Where the pipeline is
// over already it changes nothing and returns Err. call says what found that out.
func (p *Pipeline) Lose(call string, why error) error {
	lost := why
	if !errors.Is(why, device.ErrLost) {
		lost = device.Errorf(call, p.info.ID, device.ErrLost, "%v", why)
	}
	p.fail(lost)
	return p.Err()
}

func (p *Pipeline) probe(ctx context.Context, lock sync.Locker) error {
	if err := p.dev.Check(ctx); err != nil {
		return err
	}
	inPlace, err := p.probeOnce(ctx, lock, false)
	if err == nil && inPlace {
		_, err = p.probeOnce(ctx, lock, true)
	}
	return err
}

// probeOnce runs one batch of known payloads; copies has it copied even where kernels could read it in place, as inPlace
// says they did.
func (p *Pipeline) probeOnce(ctx context.Context, lock sync.Locker, copies bool) (inPlace bool, err error) {
	if err := p.Reserve(ctx); err != nil {
		return false, err
	}
	back := &probing{back: make(chan struct{}, 1)}
	b, err := p.take(back)
	if err != nil {
		return false, err
	}
	b.copies = copies
	rows := p.appendKnown(b)
	lock.Lock()
	defer lock.Unlock()
	if err := b.Submit(ClosedByCount); err != nil {
		b.Release()
		return false, err
	}
	select {
	case <-back.back:
	case <-ctx.Done():
		if p.abandonProbe(b, back) {
			return false, ctx.Err()
		}
	}
	defer b.Release()
	if err := b.Err(); err != nil {
		return false, err
	}
	return b.inPlace, p.compare(b, rows)
}

// abandonProbe leaves the batch of a probe to release itself when it comes back. It reports false where it has come back.
func (p *Pipeline) abandonProbe(b *Batch, back *probing) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.phase != inFlight {
		return false
	}
	back.abandoned = true
	return true
}

// appendKnown fills b with those of the known payloads that it has room for, and returns which they are.
func (p *Pipeline) appendKnown(b *Batch) (rows []int) {
	k := p.knownAnswers()
	for i, payload := range k.payloads {
		if b.Append(payload) {
			rows = append(rows, i)
		}
	}
	return rows
}

// knownAnswers computes the references once for each pipeline: they are slow.
func (p *Pipeline) knownAnswers() *known {
	k := &p.known
	k.once.Do(func() {
		k.payloads = knownPayloads()
		k.payloads[0] = k.payloads[0][:min(len(k.payloads[0]), p.cfg.BatchBytes)] // one of them always fits
		for _, op := range p.cfg.Operators {
			k.want = append(k.want, references(op, k.payloads))
		}
	})
	return k
}

func references(op operator.Operator, payloads [][]byte) (records []byte) {
	for _, payload := range payloads {
		records = op.AppendReference(records, payload)
	}
	return records
}

// compare says which operator gave what, if a record is not that of the reference.
func (p *Pipeline) compare(b *Batch, rows []int) error {
	for i, op := range p.cfg.Operators {
		stride := op.Stride()
		got := b.Results(i)
		for row, payload := range rows {
			g, w := got[row*stride:][:stride], p.known.want[i][payload*stride:][:stride]
			if bytes.Equal(g, w) {
				continue
			}
			at := 0
			for g[at] == w[at] {
				at++
			}
			end := min(at+8, stride)
			return fmt.Errorf("operator %s gives wrong results: for a payload of %d bytes of known content the record is %x from byte %d on, want %x",
				op, len(p.known.payloads[payload]), g[at:end], at, w[at:end])
		}
	}
	return nil
}
