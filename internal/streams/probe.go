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

// ProbeTimeout bounds a whole Probe, including the device check and the wait for a free batch.
const ProbeTimeout = 30 * time.Second

// KindProbe is the kind of the device error that an Observer receives for a failed Probe. The error of the lost device
// follows.
const KindProbe = "probe"

// knownText is longer than any shingle and contains characters of one to four bytes.
var knownText = strings.Repeat("The quick brown fox jumps over the lazy dog. Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. "+
	"いろはにほへと ちりぬるを 🦊 0123456789. ", 16)

// knownPayloads returns the payloads of a probe in order of importance, because a pipeline with tight bounds fits only
// some of them.
func knownPayloads() [][]byte {
	zeros := make([]byte, 512)
	return [][]byte{[]byte("123456789"), []byte(knownText), {}, zeros, []byte(knownText[:100]), {0xff}, []byte(knownText[1:2049])}
}

// known holds a probe's payloads and the expected outcome of each operator for each payload. The reference of a built-in
// operator computes them. An operator without a reference must repeat its first results.
type known struct {
	payloads [][]byte

	mu   sync.Mutex
	want [][][]byte // indexed by operator and payload; an outcome is nil until it has been learned
}

// probing marks the batch of a probe and signals the completion of that batch. Pipeline.mu guards it.
type probing struct {
	back      chan struct{} // receives a value once the batch has completed; buffered
	abandoned bool          // whether the probe has given up, so the pipeline must release the batch
}

// Probe checks whether the device still computes correctly. It first calls the device's Check. It then runs payloads
// with known content through this pipeline and compares the results with the expected values. If kernels used the batch
// in place, a second run uses copies. Probe uses one of the pipeline's batches, while other batches may be in flight.
// It gives up after ProbeTimeout or when ctx is done.
//
// Probe returns nil if every result is correct. If an operator fails or gives wrong results, Probe ends the pipeline
// with an error that wraps device.ErrLost. Any other error is inconclusive: the device was out of memory, it did not
// answer in time (device.ErrNotReady), or ctx was done.
//
// The busy times in Stats include the time that the engines spend on probes.
func (p *Pipeline) Probe(ctx context.Context) error { return p.ProbeUnder(ctx, &sync.Mutex{}) }

// ProbeUnder is like Probe, but holds lock while a batch of the probe is on the device. It locks only after it has
// acquired the batch, as other submitters do. This order prevents a deadlock: no goroutine waits for a batch while it
// holds the lock.
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

// Lose ends the pipeline because of a fault that the device itself doesn't report. The error wraps device.ErrLost. Lose
// returns it, Err returns it from then on, and every batch in flight fails with it. If the pipeline is already over,
// Lose only returns Err. call names the check that detected the fault.
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
// place. The result inPlace reports whether the kernels used the batch in place.
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

// abandonProbe makes the pipeline release a probe's batch on completion. It returns false if the batch has already
// completed.
func (p *Pipeline) abandonProbe(b *Batch, back *probing) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.phase != inFlight {
		return false
	}
	back.abandoned = true
	return true
}

// appendKnown appends the known payloads that fit in b, and returns their indexes.
func (p *Pipeline) appendKnown(b *Batch) (rows []int) {
	for i, payload := range p.known().payloads {
		if b.Append(payload) {
			rows = append(rows, i)
		}
	}
	return rows
}

// knownAnswers computes the reference results of the operators, which is slow.
func (o Options) knownAnswers() *known {
	k := &known{payloads: knownPayloads()}
	k.payloads[0] = k.payloads[0][:min(len(k.payloads[0]), o.BatchBytes)] // shortened so that the first payload always fits
	for _, op := range o.Operators {
		outcomes := make([][]byte, len(k.payloads))
		for i, payload := range k.payloads {
			outcomes[i] = referenceOutcome(op, payload)
		}
		k.want = append(k.want, outcomes)
	}
	return k
}

// referenceOutcome returns the outcome that the reference of a built-in operator gives for a payload. It returns nil for
// a user's operator that can refuse a record.
func referenceOutcome(op operator.Operator, payload []byte) []byte {
	switch r := op.(type) {
	case operator.ReferenceRefuser:
		if why := r.ReferenceRefusal(payload); why != "" {
			return refused(why)
		}
	case operator.Refuser:
		return nil
	}
	return op.AppendReference(nil, payload)
}

// refused returns the outcome of a record that an operator refuses.
func refused(why string) []byte { return []byte("refused: " + why) }

// value returns the expected outcome of an operator for a known payload. If the outcome isn't known yet, got becomes the
// expected outcome.
func (k *known) value(op, payload int, got []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	want := &k.want[op][payload]
	if *want == nil {
		*want = bytes.Clone(got)
	}
	return *want
}

// outcome returns the value of a row, or "refused: " and the reason if the row has no value.
func outcome(op operator.Operator, results []byte, offsets []uint32, row int, scratch *[]byte) []byte {
	if r, ok := op.(operator.Refuser); ok {
		if why := r.Refusal(results, len(offsets)-1, row); why != "" {
			return refused(why)
		}
	}
	if f, ok := op.(operator.Faulty); ok {
		if why := f.Overlong(results, offsets, row); why != "" {
			return refused(why)
		}
	}
	return operator.Value(op, results, offsets, row, scratch)
}

// wrongResult is the error of an operator that computes a known payload wrongly.
type wrongResult struct{ operator, text string }

func (w *wrongResult) Error() string { return w.text }

// compare returns a wrongResult that names the operator if a value differs from the expected value.
func (p *Pipeline) compare(b *Batch, rows []int) error {
	known := p.known()
	var scratch []byte
	for i, op := range p.o.Operators {
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
