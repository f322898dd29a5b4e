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

// ProbeTimeout bounds a whole Probe: the device check, the wait for a free batch, and the batches themselves.
const ProbeTimeout = 30 * time.Second

// KindProbe is the kind of device error that an Observer receives when a Probe fails, before the error for the lost
// device.
const KindProbe = "probe"

// knownText is longer than any shingle and contains characters of one to four bytes.
var knownText = strings.Repeat("The quick brown fox jumps over the lazy dog. Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. "+
	"いろはにほへと ちりぬるを 🦊 0123456789. ", 16)

// knownPayloads returns the payloads of a probe, the most significant first: a pipeline with tight bounds takes only
// some of them.
func knownPayloads() [][]byte {
	zeros := make([]byte, 512)
	return [][]byte{[]byte("123456789"), []byte(knownText), {}, zeros, []byte(knownText[:100]), {0xff}, []byte(knownText[1:2049])}
}

// known holds a probe's payloads and, for each operator, the values that must come back for them. Those are its reference's. An operator
// that isn't built in has no reference besides its code, so its first values on the device are those that must come back later.
type known struct {
	payloads [][]byte

	mu   sync.Mutex
	want [][][]byte // per operator: the value for each payload; nil until it has been learned
}

// probing receives a probe's batch when it completes, so that it isn't taken for a batch of payloads. Pipeline.mu
// guards it.
type probing struct {
	back      chan struct{} // receives once the batch has completed; buffered
	abandoned bool          // the probe has given up, so the batch releases itself
}

// Probe checks whether the device still computes correctly. It calls the device's own Check, then runs payloads with
// known content through this pipeline and its operators, and compares the results with the operators' reference, or with
// the first results of an operator that isn't built in. If kernels can use host memory in place, a second run uses
// copies. Probe works alongside other batches and uses one of the pipeline's batches. It gives up after ProbeTimeout or
// when ctx is done.
//
// Probe returns nil if every result is correct. If the operators fail or give wrong results, the device counts as lost:
// the error wraps device.ErrLost, and Err returns it from then on. Any other error is inconclusive: the device was out
// of memory, it did not answer in time (device.ErrNotReady), or ctx ended.
//
// An Observer doesn't get a Record for a probe. The time that the engines spend on a probe counts as busy.
func (p *Pipeline) Probe(ctx context.Context) error { return p.ProbeUnder(ctx, &sync.Mutex{}) }

// ProbeUnder is like Probe, but holds lock while each of its batches is on the device. It locks only after it has
// acquired a batch, as other submitters do, so that no goroutine waits for a batch while it holds the lock.
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

// Lose ends the pipeline because its device doesn't work, although the device itself doesn't report that. Every batch
// in flight comes back with the error that Lose returns. That error wraps device.ErrLost, and Err returns it from then
// on. If the pipeline is already over, Lose changes nothing and returns Err. The parameter call names the check that
// detected the fault.
func (p *Pipeline) Lose(call string, why error) error {
	lost := why
	if !errors.Is(why, device.ErrLost) {
		loss := device.Errorf(call, p.info.ID, device.ErrLost, "%v", why)
		if wrong := (*wrongResult)(nil); errors.As(why, &wrong) {
			loss.Operator = wrong.operator
		}
		lost = loss
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

// probeOnce runs one batch of known payloads. With copies set, the batch is copied even if kernels could use it in
// place. The result inPlace reports whether they did.
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
	b.StepThrough(ctx.Done())
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

// abandonProbe makes a probe's batch release itself when it comes back. It returns false if the batch has already come
// back.
func (p *Pipeline) abandonProbe(b *Batch, back *probing) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.phase != inFlight {
		return false
	}
	back.abandoned = true
	return true
}

// appendKnown fills b with as many known payloads as fit, and returns their indexes.
func (p *Pipeline) appendKnown(b *Batch) (rows []int) {
	for i, payload := range p.known().payloads {
		if b.Append(payload) {
			rows = append(rows, i)
		}
	}
	return rows
}

// knownAnswers computes the reference results of the operators, which takes long.
func (c Config) knownAnswers() *known {
	k := &known{payloads: knownPayloads()}
	k.payloads[0] = k.payloads[0][:min(len(k.payloads[0]), c.BatchBytes)] // the first payload always fits
	for _, op := range c.Operators {
		values := make([][]byte, len(k.payloads))
		if _, own := op.(operator.Refuser); !own {
			for i, payload := range k.payloads {
				values[i] = op.AppendReference(nil, payload)
			}
		}
		k.want = append(k.want, values)
	}
	return k
}

// value returns the value that must come back from the operator with that index. If it isn't known yet, it is got from now on.
func (k *known) value(op, payload int, got []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	want := &k.want[op][payload]
	if *want == nil {
		*want = bytes.Clone(got)
	}
	return *want
}

// outcome returns the value of a row, or the reason for which it has none.
func outcome(op operator.Operator, results []byte, offsets []uint32, row int, scratch *[]byte) []byte {
	if r, ok := op.(operator.Refuser); ok {
		if why := r.Refusal(results, len(offsets)-1, row); why != "" {
			return []byte("refused: " + why)
		}
	}
	if f, ok := op.(operator.Faulty); ok {
		if why := f.Overlong(results, offsets, row); why != "" {
			return []byte("refused: " + why)
		}
	}
	return operator.Value(op, results, offsets, row, scratch)
}

// wrongResult is the error of an operator that computes a known payload wrongly.
type wrongResult struct{ operator, text string }

func (w *wrongResult) Error() string { return w.text }

// compare returns an error that names the operator if a record differs from the reference.
func (p *Pipeline) compare(b *Batch, rows []int) error {
	known := p.known()
	var scratch []byte
	for i, op := range p.cfg.Operators {
		for row, payload := range rows {
			g := outcome(op, b.Results(i), b.Offsets(), row, &scratch)
			w := known.value(i, payload, g)
			if bytes.Equal(g, w) {
				continue
			}
			at := 0
			for at < min(len(g), len(w)) && g[at] == w[at] {
				at++
			}
			end := min(at+8, len(g), len(w))
			return &wrongResult{op.Name(), fmt.Sprintf("operator %s gives wrong results: for a known payload of %d bytes the record is %x from byte %d on, want %x",
				op, len(known.payloads[payload]), g[at:end], at, w[at:end])}
		}
	}
	return nil
}
