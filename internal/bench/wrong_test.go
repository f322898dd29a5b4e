package bench

import (
	"strings"
	"testing"

	"millrace/internal/device"
	"millrace/internal/operator"
)

// faulty is a kernel with a wrong bit at each end of its result. Only batches of at least the given size are
// affected.
type faulty struct {
	device.HostKernel
	min int
}

type faultyBound struct {
	device.BoundHostKernel
	min int
}

func (f faulty) Bind(params []byte) (device.BoundHostKernel, error) {
	k, err := f.HostKernel.Bind(params)
	return faultyBound{k, f.min}, err
}

func (f faultyBound) Run(rows []byte, offsets []uint32, scratch, result []byte, parallel device.Parallel) error {
	err := f.BoundHostKernel.Run(rows, offsets, scratch, result, parallel)
	if len(rows) >= f.min && len(result) > 0 {
		needs := f.Needs(device.Shape{Rows: len(offsets) - 1, Bytes: len(rows)})
		result[needs.Result-1] ^= 1
		result[0] ^= 1 // the last byte may be padding
	}
	return err
}

func kernelNamed(t *testing.T, name string) device.HostKernel {
	t.Helper()
	for _, k := range hostKernels() {
		if k.Name() == name {
			return k
		}
	}
	t.Fatalf("there is no kernel %q", name)
	return nil
}

// faultyKernel returns the named kernel with two wrong bits. A persistent kernel has them in every payload's
// record.
func faultyKernel(t *testing.T, name string) device.HostKernel {
	t.Helper()
	k := kernelNamed(t, name)
	if p, ok := k.(persistentHost); ok {
		return persistentHost{faulty{HostKernel: p.HostKernel}, p.idle}
	}
	return faulty{HostKernel: k}
}

// TestWrongResultsEndTheRun checks that, in every row, wrong bits end the run with an error that names the device.
func TestWrongResultsEndTheRun(t *testing.T) {
	rows := map[string]string{
		"schedules/serial": "mix", "schedules/double": "mix", "schedules/triple": "mix", "schedules/host-sync": "mix",
		"schedules/event-timing": "mix", "schedules/chunked": "mix", "schedules/cluster": "minhash:cluster",
		"schedules/warp-specialized": "minhash:warp-specialized",
		"streams/lanes":              "mix", "streams/per-thread-default": "mix", "alloc/async-kept": "mix",
		"completion/polling": "crc32c", "operators/crc32c-kernel": "crc32c", "operators/minhash-pipeline": "minhash",
		"operators/both-append": "crc32c", "operators/minhash-ragged": "minhash", "operators/quality-kernel": "quality", "operators/host-cpu": "crc32c",
		"operators/device": "mix", "latency/streams": "minhash", "latency/persistent": "crc32c:persistent",
	}
	for row, kernel := range rows {
		t.Run(row, func(t *testing.T) {
			o := tiny(openHost(t, faultyKernel(t, kernel)))
			group, _, _ := strings.Cut(row, "/")
			o.Groups, o.Rows = []string{group}, []string{row}
			_, err := Run(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), "WRONG RESULT") || !strings.Contains(err.Error(), " on host") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestPiecesAreComparedWithTheWhole checks that the comparison detects a piece that differs from the whole payload's result.
func TestPiecesAreComparedWithTheWhole(t *testing.T) {
	same := &sameResults{first: "the whole", seed: 1, results: []byte("right all over")}
	c := chunked(sessionOn(openHost(t)), mix{}, newWords(mix{}, 64<<10), 4, same)
	if err := c.Measure(t.Context(), c, 1); err == nil || !strings.Contains(err.Error(), "4 pieces differs from the whole") {
		t.Errorf("the error is %v", err)
	}
}

// TestVariantsAreComparedWhole checks that the comparison detects any byte in which a variant differs from the first kernel.
func TestVariantsAreComparedWhole(t *testing.T) {
	s, same := sessionOn(openHost(t)), &sameResults{}
	plain := kernelCase(s, "plain", 8<<10, same)
	if err := plain.Measure(t.Context(), plain, 1); err != nil {
		t.Fatal(err)
	}
	other := kernelCase(s, "cluster", 8<<10, same)
	if err := other.Measure(t.Context(), other, 1); err != nil {
		t.Errorf("equal results were reported as different: %v", err)
	}
	same.results[len(same.results)/2] ^= 1
	if err := other.Measure(t.Context(), other, 1); err == nil || !strings.Contains(err.Error(), "cluster differs from plain") {
		t.Errorf("the error is %v", err)
	}
}

// TestEqualSaysWhere checks that the error names the first different byte.
func TestEqualSaysWhere(t *testing.T) {
	op, err := operator.Parse("crc32c")
	if err != nil {
		t.Fatal(err)
	}
	if err := equal(op, 100, []byte{1, 2, 3}, []byte{1, 2, 4}); err == nil || !strings.Contains(err.Error(), "at byte 102") {
		t.Errorf("the error is %v", err)
	}
	if err := equal(op, 100, []byte{1, 2}, []byte{1, 2, 4}); err == nil {
		t.Error("a result that is too short passes")
	}
	if err := equal(op, 100, []byte{1, 2}, []byte{1, 2}); err != nil {
		t.Error(err)
	}
}
