package ingest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/client/arrow"
	"millrace/internal/compression"
	"millrace/internal/device"
	"millrace/internal/frame"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/streams"
	"millrace/internal/table"
)

// refused is another length, besides unfit, of records that refusing refuses.
const refused = unfit - 1

// refusing is an operator that refuses records of unfit or refused bytes. Its results are the records, followed by a
// status byte for each record.
type refusing struct{ operator.Operator }

func (r refusing) Refusal(results []byte, rows, row int) string {
	if results[rows*r.Stride()+row] == 0 {
		return ""
	}
	return notFitting
}

// notFitting is the reason with which refusing refuses a record.
const notFitting = "the record doesn't fit"

// wantTable returns the expected results of an input. If the first operator is refusing, it refused the records with
// an error.
func (r *rig) wantTable(in framed) *table.Table {
	want := table.Reference(r.opts.Operators, in.records, in.statuses)
	if _, ok := r.opts.Operators[0].(refusing); ok {
		for i := range in.records {
			if want.Status(i) == record.OperatorError {
				want.Refuse(i, 0, notFitting)
			}
		}
	}
	return want
}

// refusingKernel is the kernel of refusing.
type refusingKernel struct {
	device.HostKernel
	also uint32 // another length to refuse, or noOther
}

const noOther = math.MaxUint32

func (k refusingKernel) Bind(params []byte) (device.BoundHostKernel, error) {
	b, err := k.HostKernel.Bind(params)
	return refusingBound{b, k.also}, err
}

type refusingBound struct {
	device.BoundHostKernel
	also uint32
}

func (b refusingBound) Needs(s device.Shape) device.Needs {
	n := b.BoundHostKernel.Needs(s)
	n.Result += s.Rows
	return n
}

func (b refusingBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	n := len(offsets) - 1
	statuses := result[len(result)-n:]
	for i := range n {
		statuses[i] = 0
		if size := offsets[i+1] - offsets[i]; size == unfit || size == refused || size == b.also {
			statuses[i] = 1
		}
	}
	return b.BoundHostKernel.Run(rows, offsets, scratch, result[:len(result)-n], parallel)
}

// refuse makes the rig's first operator, crc32c, refuse records of unfit bytes. It returns a device with that
// operator.
func (r *rig) refuse(t *testing.T) device.Device { return r.refuseAlso(t, noOther) }

// refuseAlso is like refuse, but also refuses records of length also.
func (r *rig) refuseAlso(t *testing.T, also uint32) device.Device {
	r.opts.Operators = slices.Clone(r.opts.Operators)
	r.opts.Operators[0] = refusing{r.opts.Operators[0]}
	kernels := operator.HostKernels()
	kernels[0] = refusingKernel{kernels[0], also}
	return openHost(t, kernels)
}

// TestARefusedPayloadIsADeadLetter shows that no other payload of its batch is computed again or delayed.
func TestARefusedPayloadIsADeadLetter(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 16, 1024} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				r.opts.Split.Framing = frame.None
				d := r.refuse(t)
				r.provision()
				const n = 60
				bad := []int{0, 17, 18, 59}
				payload := unfitAt(bad...)
				r.publish(n, payload)
				r.process(d, streams.Options{BatchPayloads: batch})
				found, dead := r.stored("results.>"), r.deadLetters()
				for i := range n {
					seq := uint64(i + 1)
					if !slices.Contains(bad, i) {
						if len(found[seq]) != 1 || len(dead[seq]) != 0 {
							t.Fatalf("payload %d has %d results and %d dead letters", i, len(found[seq]), len(dead[seq]))
						}
						if err := r.opts.Format.Check(r.opts.Operators, payload(i), found[seq][0].Data()); err != nil {
							t.Errorf("payload %d: %v", i, err)
						}
						continue
					}
					if len(found[seq]) != 0 || len(dead[seq]) != 1 {
						t.Fatalf("refused payload %d has %d results and %d dead letters", i, len(found[seq]), len(dead[seq]))
					}
					wantHeaders(t, dead[seq][0].Headers(), map[string]string{
						results.HeaderReason: string(results.OperatorError), results.HeaderError: "operator crc32c: the record doesn't fit",
						results.HeaderOperator: "crc32c",
					})
					if !bytes.Equal(dead[seq][0].Data(), payload(i)) {
						t.Errorf("the dead letter of payload %d is not the payload", i)
					}
				}
				if got := r.tally.count(inflight.DeadLettered); got != len(bad) {
					t.Errorf("%d dead letters are reported, want %d", got, len(bad))
				}
			})
		})
	}
}

// TestARefusedRecordOfAFrameFailsAlone shows that all other records have results, even in other batches.
func TestARefusedRecordOfAFrameFailsAlone(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 7, 1024} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			t.Parallel()
			eachMode(t, func(t *testing.T, r *rig) {
				r.opts.Format = operator.JSON // the format that contains the reasons
				d := r.refuse(t)
				inputs := []framed{manyLines(1, 20), manyLines(2, 30, 0, 13, 29), manyLines(3, 1, 0), manyLines(4, 5)}
				r.provision()
				r.publishFrames(inputs)
				r.process(d, streams.Options{BatchPayloads: batch})
				r.wantFrames(inputs)
			})
		})
	}
}

// TestARecordThatIsNotComputedIsNotRefused uses an operator that refuses empty records. The operator gets an empty
// record in place of a null and of a record that exceeds a batch.
func TestARecordThatIsNotComputedIsNotRefused(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Split.Framing, r.opts.Format = frame.Auto, operator.JSON
		d := r.refuseAlso(t, 0)
		large := lines([]byte("fits"), bytes.Repeat([]byte("x"), 20<<10), []byte{}, []byte("fits too"))
		large.header = nats.Header{"Content-Type": {"application/x-ndjson"}}
		large.statuses = []record.Status{record.OK, record.TooLarge, record.OperatorError, record.OK}
		f := arrow.NewFrame("record")
		f.AppendNull()
		for _, text := range []string{"a", ""} {
			if err := f.Append([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		body, err := f.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		nulls := framed{
			body: body, header: nats.Header{"Content-Type": {"application/vnd.apache.arrow.stream"}}, records: [][]byte{nil, []byte("a"), {}},
			statuses: []record.Status{record.Null, record.OK, record.OperatorError},
		}
		r.provision()
		r.publishFrames([]framed{large, nulls})
		r.process(d, streams.Options{BatchBytes: 16 << 10})
		r.wantFrames([]framed{large, nulls})
	})
}

// TestARefusedCompressedPayloadIsADeadLetter covers the separate code for a compressed message without framing.
func TestARefusedCompressedPayloadIsADeadLetter(t *testing.T) {
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Split.Framing, r.opts.Decompress = frame.None, compression.Auto
		d := r.refuse(t)
		r.provision()
		in := framed{body: new(compression.Compressor).Append(nil, compression.Zstd, bytes.Repeat([]byte{'x'}, unfit))}
		in.header = map[string][]string{"Content-Encoding": {"zstd"}}
		r.publishFrames([]framed{in})
		r.process(d, streams.Options{})
		dead := r.deadLetters()[1]
		if len(dead) != 1 || len(r.stored("results.>")) != 0 {
			t.Fatalf("%d dead letters, want 1 and no result", len(dead))
		}
		wantHeaders(t, dead[0].Headers(), map[string]string{results.HeaderReason: string(results.OperatorError), results.HeaderError: "operator crc32c: the record doesn't fit", results.HeaderOperator: "crc32c"})
	})
}

// TestARefusedPayloadBesideOneThatFails computes a batch again in parts. Each part must keep the refusals.
func TestARefusedPayloadBesideOneThatFails(t *testing.T) {
	eachMode(t, func(t *testing.T, r *rig) {
		r.opts.Split.Framing = frame.None
		r.opts.Operators = slices.Clone(r.opts.Operators)
		r.opts.Operators[0] = refusing{r.opts.Operators[0]}
		kernels := operator.HostKernels()
		kernels[0], kernels[1] = refusingKernel{kernels[0], noOther}, picky{kernels[1], false}
		r.provision()
		const n, failing = 40, 11
		payload := func(i int) []byte {
			if i == 3 || i == 12 || i == 30 {
				return bytes.Repeat([]byte{'x'}, refused)
			}
			return unfitAt(failing)(i)
		}
		r.publish(n, payload)
		r.process(openHost(t, kernels), streams.Options{BatchPayloads: 16})
		found, dead := r.stored("results.>"), r.deadLetters()
		for i := range n {
			want := ""
			switch len(payload(i)) {
			case refused:
				want = "operator crc32c: the record doesn't fit"
			case unfit:
				want = "the results need"
			}
			seq := uint64(i + 1)
			if (want == "") != (len(found[seq]) == 1) || (want != "") != (len(dead[seq]) == 1) {
				t.Fatalf("payload %d of %d bytes has %d results and %d dead letters", i, len(payload(i)), len(found[seq]), len(dead[seq]))
			}
			if want != "" && dead[seq][0].Headers().Get(results.HeaderOperator) == "" {
				t.Errorf("the dead letter of payload %d names no operator", i)
			}
			if want != "" && !strings.Contains(dead[seq][0].Headers().Get(results.HeaderError), want) {
				t.Errorf("the dead letter of payload %d says %q, want %q", i, dead[seq][0].Headers().Get(results.HeaderError), want)
			}
		}
	})
}
