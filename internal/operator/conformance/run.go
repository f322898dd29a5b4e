package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"millrace/internal/device"
)

// Compute runs a batch and returns the answer for each record. The error is a *Finding if the operator is to blame.
func (r *Runner) Compute(ctx context.Context, rows [][]byte) ([]Answer, error) {
	return r.run(ctx, rows, contents{poison: 0xa5})
}

// run runs a batch in memory with these contents. It checks what the operator must not do in any batch. The error is a *Finding if the
// operator is to blame.
func (r *Runner) run(ctx context.Context, rows [][]byte, c contents) ([]Answer, error) {
	shape := shapeOf(rows)
	needs := r.kernel.Needs(shape)
	if want := resultBytes(r.operator(), shape); needs.Result != want || needs.Scratch < 0 {
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
	return r.answers(rows, p.offsets.of(before), p.result.of(after))
}

// finding returns a finding about a whole batch.
func finding(kind Kind, format string, args ...any) *Finding {
	return &Finding{Kind: kind, Record: -1, Text: fmt.Sprintf(format, args...)}
}

func shapeOf(rows [][]byte) device.Shape {
	s := device.Shape{Rows: len(rows)}
	for _, row := range rows {
		s.Bytes += len(row)
		s.Longest = max(s.Longest, len(row))
	}
	return s
}

// enqueue puts the whole work of a batch on the stream.
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

// arguments returns the arguments of a launch, and what must be copied for it.
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

// wait waits for the batch. A batch that doesn't end in time is a finding.
func (r *Runner) wait(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, r.subject.Patience)
	defer cancel()
	token, err := r.completion(patient)
	switch {
	case err == nil && token != r.token:
		return fmt.Errorf("conformance: completion %d arrived, want %d", token, r.token)
	case err != nil && patient.Err() != nil && ctx.Err() == nil:
		return finding(Endless, "it didn't finish within %v: look for a loop that doesn't end", r.subject.Patience)
	}
	return err
}

// completion waits for a token of the device. It calls Waiting if there is none after Notice.
func (r *Runner) completion(ctx context.Context) (uint64, error) {
	early, cancel := context.WithTimeout(ctx, r.subject.Notice)
	defer cancel()
	token, err := r.subject.Device.WaitCompletion(early)
	if err == nil || early.Err() == nil || ctx.Err() != nil {
		return token, err
	}
	r.subject.Waiting()
	return r.subject.Device.WaitCompletion(ctx)
}

// answers cuts a result into the answers for the records, and checks what the operator declares.
func (r *Runner) answers(rows [][]byte, table, result []byte) ([]Answer, error) {
	o := r.operator()
	offsets := make([]uint32, len(rows)+1)
	for i := range offsets {
		offsets[i] = binary.LittleEndian.Uint32(table[4*i:])
	}
	answers := make([]Answer, len(rows))
	if err := o.Check(offsets, result); err != nil {
		return nil, finding(Undeclared, "%v", err)
	}
	for i := range answers {
		answers[i] = Answer{Status: o.Status(result, len(rows), i), operator: o, value: o.AppendValue(nil, offsets, result, i)}
	}
	for i, a := range answers {
		if a.Status != done && !a.blank() {
			return nil, &Finding{Kind: LeftOver, Record: i, Data: rows[i], Text: fmt.Sprintf(
				"its status is %d (%s), but its result isn't zeros", a.Status, a.reason())}
		}
	}
	return answers, nil
}
