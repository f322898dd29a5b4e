package conformance

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"millrace/internal/corpus"
	"millrace/internal/device"
	"millrace/internal/operator"
)

// operatorCase is a batch and the exact result that an operator must produce for it.
type operatorCase struct {
	label  string // name of the subtest; unique among the cases of an operator
	name   string // name of the operator
	params []byte // parameter block of the operator
	rows   [][]byte
	want   []byte // the result records, back to back

	refuser operator.ReferenceRefuser // the operator if its results have statuses; otherwise nil
}

// operatorTests returns tests that run each case with two different poisons, so that a byte that isn't written is
// detected.
func operatorTests(cases []operatorCase) []test {
	var all []test
	for _, c := range cases {
		all = append(all, test{fmt.Sprintf("%s/%s", c.name, c.label), func(r *rig) {
			s, k := r.stream("case"), r.kernel(c.name, c.params)
			b := r.newBatch(k, c.rows)
			for _, poison := range []byte{0x00, 0xFF} {
				b.enqueue(s, poison)
				r.sync(s)
				if c.refuser == nil {
					b.check(c.label, c.want)
				} else {
					c.checkWithStatuses(r, b.records(c.label))
				}
			}
		}})
	}
	return all
}

// checkWithStatuses checks the records and the statuses of a result. The padding between them may have any bytes.
func (c operatorCase) checkWithStatuses(r *rig, result []byte) {
	r.Helper()
	r.wantRecords(c.label, result[:min(len(result), len(c.want))], c.want, len(c.rows))
	for i, row := range c.rows {
		if got, want := c.refuser.Refusal(result, len(c.rows), i), c.refuser.ReferenceRefusal(row); got != want {
			r.Fatalf("%s: row %d of %d: refusal %q, want %q", c.label, i, len(c.rows), got, want)
		}
	}
}

// specs are the operators that every payload set is tested with. They include minhash with the default parameters, with
// the smallest parameters, and with the longest shingle.
var specs = []string{
	"crc32c",
	"minhash",
	"minhash?k=1&hashes=1&seed=0",
	"minhash?k=256&hashes=3&seed=4294967295",
	"quality",
	"quality?ngrams=true",
	"neardup",
	"neardup?bands=3&rows=1&k=1&seed=0",
}

// wide has the maximum number of hashes. Its reference is slow, so it is tested with one set only.
const wide = "minhash?k=5&hashes=1024&seed=7"

// operatorCases returns the cases of every operator with every payload set for which keep returns true. If keep is nil,
// it returns all cases. Computing all expected results with the operators' references takes about a second on one core.
func operatorCases(t *testing.T, keep func(spec string, set corpus.Set) bool) (all []operatorCase) {
	t.Helper()
	for _, set := range corpus.Sets(1) {
		for _, spec := range specs {
			if keep == nil || keep(spec, set) {
				all = append(all, newOperatorCase(t, spec, set))
			}
		}
	}
	return append(all, newOperatorCase(t, wide, corpus.Set{Name: "lengths", Payloads: corpus.Lengths(1, 300)}))
}

// newOperatorCase computes the expected results of a set with the reference.
func newOperatorCase(t *testing.T, spec string, set corpus.Set) operatorCase {
	t.Helper()
	op, err := operator.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	op = operator.KernelOf(op)
	c := operatorCase{label: op.String() + " of " + set.Name, name: op.Name(), params: op.Params(), rows: set.Payloads}
	c.refuser, _ = op.(operator.ReferenceRefuser)
	for _, payload := range set.Payloads {
		c.want = op.AppendReference(c.want, payload)
	}
	return c
}

// isCheap reports whether a case is quick on CPU cores. Package operator tests the slow cases with the same kernels.
// The cases here test how the device divides large records of crc32c and of the smallest minhash.
func isCheap(spec string, set corpus.Set) bool {
	bytes := 0
	for _, payload := range set.Payloads {
		bytes += len(payload)
	}
	return bytes < 100<<10 || spec == "crc32c" || strings.HasPrefix(spec, "minhash?k=1&")
}

// variantCases returns minhash's cases for each variant that the GPU supports. A variant is an operator with minhash's
// parameters and results and a particular kind of kernel. A test of an unsupported variant is skipped with a message in
// capitals. With MILLRACE_REQUIRE_GPU=1, only a compute capability below 9.0 is an accepted reason.
func variantCases(t *testing.T, open func(t *testing.T) device.Device, cases []operatorCase) (all []operatorCase) {
	t.Helper()
	r := newRig(t, open)
	for _, name := range []string{"minhash:plain", "minhash:warp-specialized", "minhash:cluster"} {
		var renamed []operatorCase
		for _, c := range cases {
			if c.name == "minhash" {
				c.name = name
				renamed = append(renamed, c)
			}
		}
		k, err := r.dev.Kernel(name, renamed[0].params)
		if err != nil {
			t.Run(name, func(t *testing.T) { excuse(t, r.dev.Info(), err) })
			continue
		}
		r.closeLater(k.Close)
		all = append(all, renamed...)
	}
	return all
}

// excuse skips the test of a variant that the GPU refused, if the reason is accepted.
func excuse(t *testing.T, info device.Info, err error) {
	t.Helper()
	var major int
	if _, bad := fmt.Sscanf(info.Compute, "%d.", &major); bad != nil || !errors.Is(err, device.ErrUnavailable) {
		t.Fatalf("compute capability %q: %v", info.Compute, err)
	}
	if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" && major >= 9 {
		t.Fatalf("COMPUTE CAPABILITY %s SUPPORTS THIS VARIANT: %v", info.Compute, err)
	}
	t.Skipf("NOT TESTED: GPU %s DOES NOT SUPPORT THIS VARIANT: %v", info.ID, err)
}
