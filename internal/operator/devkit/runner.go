package devkit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/operator/compiled"
)

// Subject is an operator on a device.
type Subject struct {
	Device   device.Device      // has a kernel with the operator's name
	Operator *compiled.Operator // the operator with its parameters

	// Patience is the maximum time of one batch on the device. 0 means one minute, or ten minutes with Apart, because tools that check memory
	// addresses are slow.
	Patience time.Duration

	// Waiting is called once for each batch that still runs after Notice. A Notice of 0 means three seconds.
	Waiting func(batch string, patience time.Duration)
	Notice  time.Duration

	// Apart allocates each part of a batch separately, with exactly the bytes that it needs. Otherwise the parts are slices of one
	// allocation, and tools that check addresses don't detect an access from one part to another.
	Apart bool

	// Before is called before each batch with the batch's name, -1 and nil. If a record is computed alone, Before is called with the
	// record's index and bytes. Code that crashes ends the process, so Before can tell another process which record caused the crash.
	Before func(batch string, record int, data []byte)

	// Brief omits batches with a record of a megabyte or more, and most runs of single records.
	Brief bool
}

// Runner runs batches of an operator on a device. It isn't safe for concurrent use, and no other goroutine may wait for completions of its
// device.
type Runner struct {
	subject    Subject
	kernel     device.Kernel
	stream     device.Stream
	begin, end device.Event // recorded before and after the kernel
	buffers    buffers
	token      uint64
	batch      string // name of the current batch
	noticed    string // batch for which Waiting was called last
}

// Open binds the operator to its device. The caller closes the result before the device.
func Open(s Subject) (r *Runner, err error) {
	switch {
	case s.Patience == 0 && s.Apart:
		s.Patience = 10 * time.Minute
	case s.Patience == 0:
		s.Patience = time.Minute
	}
	if s.Notice == 0 {
		s.Notice = 3 * time.Second
	}
	r = &Runner{subject: s, buffers: buffers{device: s.Device, apart: s.Apart}}
	defer func() {
		if err != nil {
			_ = r.Close() // err is the error to report
		}
	}()
	if r.kernel, err = s.Device.Kernel(s.Operator.Name(), s.Operator.Params()); err != nil {
		return nil, err
	}
	if r.stream, err = s.Device.NewStream("devkit"); err != nil {
		return nil, err
	}
	for _, e := range []*device.Event{&r.begin, &r.end} {
		if *e, err = s.Device.NewEvent(device.Timed); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close frees all resources of the Runner on its device.
func (r *Runner) Close() error {
	var errs []error
	if r.stream != nil {
		errs = append(errs, r.stream.Close())
	}
	for _, e := range []device.Event{r.begin, r.end} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if r.kernel != nil {
		errs = append(errs, r.kernel.Close())
	}
	return errors.Join(append(errs, r.buffers.free())...)
}

// before calls Subject.Before for a batch, or for a record alone.
func (r *Runner) before(batch string, record int, data []byte) {
	r.batch = batch
	if r.subject.Before != nil {
		r.subject.Before(batch, record, data)
	}
}

// deviceName returns the user's term for the kind of device.
func (r *Runner) deviceName() string {
	switch r.subject.Device.Info().Kind {
	case "cuda":
		return "GPU"
	case "host":
		return "CPU"
	}
	return "simulated device"
}

// resultBytes returns the size of a batch's result in bytes, according to the operator's declaration.
func (r *Runner) resultBytes(s device.Shape) int {
	return r.subject.Operator.Layout(s.Rows, s.Bytes).End
}

// memory returns the size in bytes of the memory that a batch needs on the device.
func (r *Runner) memory(rows [][]byte) int {
	shape := shapeOf(rows)
	return shape.Bytes + r.kernel.Needs(shape).Scratch + r.resultBytes(shape)
}

func shapeOf(rows [][]byte) device.Shape {
	s := device.Shape{Rows: len(rows)}
	for _, row := range rows {
		s.Bytes += len(row)
		s.Longest = max(s.Longest, len(row))
	}
	return s
}

// Compute runs a batch and returns the answer for each record. The error is a *Finding if the operator caused it.
func (r *Runner) Compute(ctx context.Context, batch string, rows [][]byte) ([]Answer, error) {
	r.before(batch, -1, nil)
	return r.run(ctx, rows, contents{poison: 0xa5})
}

// RunSingly computes each record alone and drops the results. With Subject.Before, it finds a record that makes the code end the process.
func (r *Runner) RunSingly(ctx context.Context, batches []corpus.Set) error {
	for _, set := range batches {
		for i, data := range set.Payloads {
			r.before(set.Name, i, data)
			var found *Finding // Test reports such findings
			if _, err := r.run(ctx, set.Payloads[i:i+1], first); err != nil && !errors.As(err, &found) {
				return err
			}
		}
	}
	return nil
}

// Limits of a measurement.
const (
	rateBatch = 8 << 20 // bytes of records
	rateRuns  = 9
	rateTime  = 3 * time.Second // time after which a measurement ends with fewer runs
)

// Rate returns the throughput of the kernel alone in bytes per second, for text records of recordBytes bytes. The throughput is the
// median of several runs, measured with the device's clock after a warm-up run. The batch has 8 MiB, or less if the operator's results
// would need too much memory.
func (r *Runner) Rate(ctx context.Context, recordBytes int) (float64, error) {
	r.before(fmt.Sprintf("records of %d bytes", recordBytes), -1, nil)
	rows := slices.Collect(slices.Chunk(corpus.Text(1, rateBatch/recordBytes*recordBytes), recordBytes))
	for len(rows) > 1 && r.memory(rows) > maxMemory {
		rows = rows[:len(rows)/2]
	}
	var times []time.Duration
	for start := time.Now(); len(times) <= rateRuns && (len(times) < 2 || time.Since(start) < rateTime); {
		if _, err := r.run(ctx, rows, contents{}); err != nil {
			return 0, err
		}
		begin, err := r.begin.Time()
		if err != nil {
			return 0, err
		}
		end, err := r.end.Time()
		if err != nil {
			return 0, err
		}
		times = append(times, end-begin)
	}
	times = times[1:]
	slices.Sort(times)
	return float64(shapeOf(rows).Bytes) / max(times[len(times)/2], 1).Seconds(), nil
}

// run runs a batch in memory with the contents c, and checks the rules for every batch. The error is a *Finding if the operator caused it.
func (r *Runner) run(ctx context.Context, rows [][]byte, c contents) ([]Answer, error) {
	shape := shapeOf(rows)
	needs := r.kernel.Needs(shape)
	if want := r.resultBytes(shape); needs.Result != want || needs.Scratch < 0 {
		return nil, finding(WrongNeeds, "it asks for %d bytes for the result of %d records with %d bytes, and its declaration says %d",
			needs.Result, shape.Rows, shape.Bytes, want)
	}
	p := place(shape, needs, c.shift)
	if err := r.buffers.grow(p.bytes); err != nil {
		return nil, err
	}
	p.fill(r.buffers.in.Bytes(), rows, c)
	copy(r.buffers.out.Bytes(), r.buffers.in.Bytes()[:p.bytes])
	err := r.enqueue(p, shape, c.mapped)
	if err == nil {
		err = r.wait(ctx)
	}
	if errors.Is(err, device.ErrLost) {
		text, _, _ := strings.Cut(err.Error(), "\n") // without the stack of a panic
		if r.subject.Device.Info().Kind == "cuda" {
			text += "; compute-sanitizer shows the access: worker operator test --sanitize"
		}
		return nil, finding(Lost, "the device failed: %s", text)
	}
	var late *Finding
	if errors.As(err, &late) {
		return nil, err // the device still uses the memory
	}
	if err = errors.Join(err, r.buffers.freeParts()); err != nil {
		return nil, err
	}
	before, after := r.buffers.in.Bytes()[:p.bytes], r.buffers.out.Bytes()[:p.bytes]
	if text := p.damage(before, after); text != "" {
		return nil, finding(WroteOutside, "%s", text)
	}
	return r.answers(rows, p.offsets.slice(before), p.result.slice(after))
}

// enqueue enqueues all work of a batch on the stream. If mapped is set, the kernel uses the records, the offsets and the result in
// host memory.
func (r *Runner) enqueue(p places, shape device.Shape, mapped bool) error {
	args, parts, err := r.arguments(p, shape, mapped)
	if err != nil {
		return err
	}
	in, out, s := r.buffers.in, r.buffers.out, r.stream
	for _, part := range parts {
		if err := s.CopyIn(part.memory, in.Slice(part.at, part.bytes)); err != nil {
			return err
		}
	}
	if err := errors.Join(s.Record(r.begin), s.Launch(r.kernel, args), s.Record(r.end)); err != nil {
		return err
	}
	for _, part := range parts {
		if err := s.CopyOut(out.Slice(part.at, part.bytes), part.memory); err != nil {
			return err
		}
	}
	r.token++
	return s.Notify(r.token)
}

// copied is a span that is copied to device memory and back.
type copied struct {
	span
	memory device.Memory
}

// arguments returns the arguments of a launch, and the parts that must be copied for it.
func (r *Runner) arguments(p places, shape device.Shape, mapped bool) (device.LaunchArgs, []copied, error) {
	args := device.LaunchArgs{Shape: shape}
	if !mapped && !r.buffers.apart {
		m := r.buffers.memory
		args.Rows, args.Offsets = m.Slice(p.rows.at, p.rows.bytes), m.Slice(p.offsets.at, p.offsets.bytes)
		args.Scratch, args.Result = m.Slice(p.scratch.at, p.scratch.bytes), m.Slice(p.result.at, p.result.bytes)
		return args, []copied{{span{0, p.bytes}, m.Slice(0, p.bytes)}}, nil
	}
	var parts []copied
	for _, one := range []struct {
		to     *device.Memory
		from   span
		inHost bool
	}{
		{&args.Rows, p.rows, mapped}, {&args.Offsets, p.offsets, mapped}, {&args.Scratch, p.scratch, false}, {&args.Result, p.result, mapped},
	} {
		var err error
		if one.inHost {
			*one.to, err = r.subject.Device.(device.Mapper).Map(r.buffers.out.Slice(one.from.at, max(one.from.bytes, 1))) // no part is empty
		} else if *one.to, err = r.buffers.part(one.from); err == nil && one.from.bytes > 0 {
			parts = append(parts, copied{one.from, *one.to})
		}
		if err != nil {
			return args, nil, err
		}
	}
	return args, parts, nil
}

// wait waits for the batch. It returns a *Finding if the batch doesn't finish within Subject.Patience.
func (r *Runner) wait(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, r.subject.Patience)
	defer cancel()
	token, err := r.completion(patient)
	switch {
	case err == nil && token != r.token:
		return fmt.Errorf("devkit: completion %d arrived, want %d", token, r.token)
	case err != nil && patient.Err() != nil && ctx.Err() == nil:
		return finding(Endless, "it didn't finish within %v: look for a loop that doesn't end", r.subject.Patience)
	}
	return err
}

// completion waits for a token of the device. It calls Waiting if there is no token after Notice.
func (r *Runner) completion(ctx context.Context) (uint64, error) {
	early, cancel := context.WithTimeout(ctx, r.subject.Notice)
	defer cancel()
	token, err := r.subject.Device.WaitCompletion(early)
	if err == nil || early.Err() == nil || ctx.Err() != nil {
		return token, err
	}
	if r.subject.Waiting != nil && r.noticed != r.batch {
		r.noticed = r.batch
		r.subject.Waiting(r.batch, r.subject.Patience)
	}
	return r.subject.Device.WaitCompletion(ctx)
}

// answers splits a result into the answers for the records, and checks it against the operator's declaration. table is the encoded
// table of offsets.
func (r *Runner) answers(rows [][]byte, table, result []byte) ([]Answer, error) {
	o := r.subject.Operator
	offsets := make([]uint32, len(rows)+1)
	for i := range offsets {
		offsets[i] = binary.LittleEndian.Uint32(table[4*i:])
	}
	if err := o.Check(offsets, result); err != nil {
		return nil, finding(Undeclared, "%v", err)
	}
	answers := make([]Answer, len(rows))
	for i := range answers {
		a := Answer{Status: o.Status(result, len(rows), i), operator: o, value: o.AppendValue(nil, offsets, result, i)}
		if a.Status != done && !a.isBlank() {
			return nil, &Finding{Kind: LeftOver, Record: i, Data: rows[i],
				Text: fmt.Sprintf("its status is %d (%s), but its result isn't zeros", a.Status, a.reason())}
		}
		answers[i] = a
	}
	return answers, nil
}
