package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"millrace/internal/bench/report"
	"millrace/internal/device"
	"millrace/internal/streams"
)

// rig is the pipeline of a case on one device. The case opens it for each round.
type rig struct {
	dev     device.Device
	info    device.Info
	o       streams.Options
	variant func(device.Device) device.Device // wraps the device in the variant that the row measures; may be nil

	p    *streams.Pipeline // nil while the rig is closed
	held []*streams.Batch  // batches of all slots; the case owns them between two runs
}

// newRig returns a rig for batches of l on the session's device.
func newRig(s *Session, l *load, schedule streams.Schedule) *rig {
	r := &rig{dev: s.dev, info: s.info, o: s.Pipeline(s.info, l.operators)}
	r.o.Lanes, r.o.Schedule = s.Lanes, schedule
	r.o.Copies = s.info.Kind == "host" // the CPU needs no copies, but without copies there would be nothing to overlap
	r.o.BatchBytes, r.o.BatchPayloads = l.size, l.count
	return r
}

// row returns a row with the rig's configuration.
func (r *rig) row(name string) report.Row {
	o := r.o
	return report.Row{
		Name: name, Device: r.info.ID, Lanes: cmp.Or(o.Schedule.Lanes, o.Lanes), Buffers: o.Schedule.Buffers,
		BatchBytes: o.BatchBytes, Operator: Specs(o.Operators),
	}
}

func (r *rig) open() (err error) {
	dev := r.dev
	if r.variant != nil {
		dev = r.variant(dev)
	}
	r.p, err = streams.New(dev, r.o)
	return err
}

func (r *rig) close() error {
	if r.p == nil {
		return nil
	}
	p := r.p
	r.p, r.held = nil, nil
	return p.Close()
}

// workerSchedule returns the worker's schedule on the session's device.
func workerSchedule(s *Session) streams.Schedule {
	schedule := s.Pipeline(s.info, nil).Schedule
	if schedule.Buffers == 0 {
		return streams.Overlapped
	}
	return schedule
}

// receive waits for a completed batch. It returns the batch and the time that it waited.
func receive(ctx context.Context, p *streams.Pipeline) (b *streams.Batch, waited time.Duration, err error) {
	select {
	case b = <-p.Completed():
	default:
		start := time.Now()
		select {
		case b = <-p.Completed():
		case <-p.Over():
			return nil, 0, p.Err()
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		waited = time.Since(start)
	}
	if err := b.Err(); err != nil {
		return nil, waited, fmt.Errorf("a batch came back with an error: %w", err)
	}
	return b, waited, nil
}

// verifyAll checks the results of the last run in the held batches, on all cores, because references are slow.
func verifyAll(held []*streams.Batch, l *load, seed uint64) error {
	var group sync.WaitGroup
	errs := make([]error, len(held))
	cores := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, b := range held {
		cores <- struct{}{}
		group.Go(func() {
			defer func() { <-cores }()
			if err := l.verify(b, seed); err != nil {
				errs[i] = fmt.Errorf("slot %d: %w", b.Slot(), err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

const (
	recentBatches = 256 // number of last batches of a run that determine its stage times
	tracedBatches = 48  // number of last batches of a row that a trace contains
)

// recent keeps the records of at least the last recentBatches batches, and at most twice as many.
type recent struct {
	mu      sync.Mutex
	records []streams.Record
}

func (r *recent) note(record *streams.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.records) == 2*recentBatches {
		r.records = r.records[:copy(r.records, r.records[recentBatches:])]
	}
	r.records = append(r.records, *record)
}

// last returns the last n records, or all records if there are fewer, oldest first.
func (r *recent) last(n int) []streams.Record { return r.records[max(len(r.records)-n, 0):] }
