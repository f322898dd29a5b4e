package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/testbuild"
	"millrace/internal/operator/userops"
)

// moody is a user-written operator that misbehaves on records that begin with an exclamation mark. If ENDS is true, as
// in the test's reference, it neither hangs nor crashes. VERSION is added to the result.
const moody = `
#define MILLRACE_UNCHECKED
#include <millrace/operator.cuh>
MILLRACE_OPERATOR(moody, VERSION)
MILLRACE_RESULT(uint32_t, size)
MILLRACE_RESULT_BYTES(text, 3, 0)
MILLRACE_REASON(refused, "it is in no mood for this record")
MILLRACE_RECORD(record, params, result) {
    uint32_t mood = record.size() > 1 && record[0] == '!' ? record[1] : 0;
    if (mood == 'r') return result.reject(refused);
    if (mood == 'e' && !ENDS) for (volatile uint32_t i = 0;; i = i + 1) {}
    if (mood == 'c' && !ENDS) __builtin_trap();
    result.size = record.size() + VERSION;
    if (mood == 's') result.internal_code_ = 9;
    if (mood == 'o') result.internal_code_ = 254;
    if (mood == 't') result.text.resize(4);
    else result.text.push('x');
}
`

// writeMoody writes the source and library of a version of moody into a folder. The text of the source depends on the
// version.
func writeMoody(t testing.TB, folder, version, ends string) {
	t.Helper()
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("NOT TESTED: THERE IS NO C++ COMPILER (c++) THAT CAN BUILD A USER-WRITTEN OPERATOR")
	}
	source := filepath.Join(folder, "moody"+compiled.SourceSuffix)
	text := strings.NewReplacer("VERSION", version, "ENDS", ends).Replace(moody)
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := testbuild.Compile(t.Context(), cpulib.Compile, source, filepath.Join(folder, "moody"+compiled.CPUSuffix)); err != nil {
		t.Fatal(err)
	}
}

// findMoody parses a list of operators. The folder contains moody.
func findMoody(t testing.TB, folder, list string) []operator.Operator {
	t.Helper()
	found, err := userops.Find([]string{folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := operator.ParseList(list, found[0])
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// moody sets the workers' operators and returns the folder with moody. The rig's reference ends on every record.
func (r *rig) moody(list string) (folder string) {
	r.t.Helper()
	folder, reference := r.t.TempDir(), r.t.TempDir()
	writeMoody(r.t, folder, "1", "false")
	writeMoody(r.t, reference, "1", "true")
	r.ops = findMoody(r.t, reference, list)
	r.set("MILLRACE_OPERATORS="+list, "MILLRACE_OPERATOR_PATH="+folder)
	return folder
}

// moods returns a function that creates inputs. Every n-th input begins with one of moods, in turn. All other inputs
// behave well.
func (r *rig) moods(n int, moods ...string) func(i int) *nats.Msg {
	plain := r.inputsOf(func(rng *rand.Rand) int { return rng.IntN(1 << 10) })
	return func(i int) *nats.Msg {
		m := plain(i)
		prefix := "."
		if i%n == n/2 {
			prefix = moods[i/n%len(moods)]
		}
		m.Data = append([]byte(prefix), m.Data...)
		return m
	}
}

// deadLetter holds the headers of a dead letter that tests compare.
type deadLetter struct{ reason, operator, text string }

// deadLetters counts the dead letters with equal deadLetter values.
func (r *rig) deadLetters() map[deadLetter]int {
	r.t.Helper()
	found := map[deadLetter]int{}
	r.read(deadStream, func(_ uint64, m jetstream.Msg) {
		h := m.Headers()
		found[deadLetter{h.Get(results.HeaderReason), h.Get(results.HeaderOperator), h.Get(results.HeaderError)}]++
	})
	return found
}

// TestOwnOperatorRefusesEverything shows that every payload becomes a dead letter that names the operator and its reason.
func TestOwnOperatorRefusesEverything(t *testing.T) {
	eachMode(t, func(r *rig) {
		n := times(20000, 1000)
		r.moody("crc32c,moody")
		r.serve(1)
		r.work(1)
		r.feed(n, r.moods(1, "!r")).wait()
		r.awaitFinished()
		if got := r.mustMetric(r.workers[0], `millrace_operator_faults_total{`); got != 0 {
			t := r.t
			t.Errorf("%v operator faults, want 0: a refusal isn't a fault", got)
		}
		a := r.close("an operator of one's own refuses everything", n)
		want := deadLetter{"operator_error", "moody", "operator moody: it is in no mood for this record"}
		if got := r.deadLetters(); a.dead != n || got[want] != n {
			r.t.Errorf("%d dead letters: %v, want %d that say %v", a.dead, got, n, want)
		}
	})
}

// TestOwnOperatorReturnsUndeclaredResults shows that only the affected records fail, and the device continues to work.
func TestOwnOperatorReturnsUndeclaredResults(t *testing.T) {
	eachMode(t, func(r *rig) {
		n := times(30000, 1500)
		r.moody("moody,crc32c")
		r.serve(1)
		r.work(1)
		r.feed(n, r.moods(10, "!s", "!t", "!o")).wait()
		r.awaitFinished()
		for fault, minimum := range map[string]int{operator.FaultInvalidResult: n / 15, operator.FaultOutOfBounds: n / 30} {
			if got := r.mustMetric(r.workers[0], `millrace_operator_faults_total{fault="`+fault+`",operator="moody"}`); got < float64(minimum) {
				r.t.Errorf("%v faults %s of moody are counted, want at least %d", got, fault, minimum)
			}
		}
		a := r.close("an operator of one's own returns undeclared statuses and lengths", n/10)
		got := r.deadLetters()
		for _, text := range []string{
			"undeclared result: status 9", "undeclared result: text is too long", "the operator accessed a byte outside the record or its result",
		} {
			if want := (deadLetter{"operator_error", "moody", "operator moody: " + text}); got[want] != n/30 {
				r.t.Errorf("%d dead letters say %v, want %d; all: %v", got[want], want, n/30, got)
			}
		}
		if a.dead != n/10 {
			r.t.Errorf("%d dead letters, want %d", a.dead, n/10)
		}
	})
}

// TestOwnOperatorDoesNotEnd shows that records on which the operator doesn't end hang the device of every worker that
// receives them, until each record is found.
func TestOwnOperatorDoesNotEnd(t *testing.T) {
	eachMode(t, func(r *rig) {
		hangs := times(3, 1)
		r.moody("crc32c,moody")
		r.set("MILLRACE_BATCH_DEADLINE_MIN=2s", "MILLRACE_BATCH_DEADLINE_MAX=3s", "MILLRACE_BATCH_PAYLOADS=64", "MILLRACE_DRAIN_TIMEOUT=5s")
		r.ownFault("an operator of one's own does not end", hangs, times(4000, 600), "!e", operator.FaultDeadline, "moody")
	})
}

// TestOwnOperatorCrashesTheWorker has an operator whose CPU code runs in the worker's process and crashes it. Later
// workers find each record that crashes the process.
func TestOwnOperatorCrashesTheWorker(t *testing.T) {
	eachMode(t, func(r *rig) {
		crashes, n := times(3, 1), times(4000, 600)
		r.moody("crc32c,moody")
		r.set("MILLRACE_BATCH_PAYLOADS=64")
		r.serve(1)
		s := r.supervise()
		r.until("the worker is ready", func() bool { return s.current().isReady() })
		r.feed(crashes*n, r.moods(n, "!c")).wait()
		r.awaitFinished()
		r.until("the worker after the last that ended is ready", func() bool { return s.current().isReady() })
		s.retire()
		codes := s.exitCodes()
		for _, code := range codes {
			if code != 2 { // the status with which Go's runtime ends a process after such a signal
				r.t.Errorf("workers ended with the statuses %v, want 2", codes)
				break
			}
		}
		a := r.mustAudit(1)
		for letter, count := range r.deadLetters() {
			if letter.reason != "device_fault" {
				r.t.Errorf("%d dead letters say %+v, want a device_fault", count, letter)
			}
		}
		if len(codes) < 2*crashes || a.dead != crashes {
			r.t.Errorf("%d workers ended, and there are %d dead letters; want %d of each", len(codes), a.dead, crashes)
		}
		r.enter("an operator of one's own crashes the worker", crashes, a)
	})
}

// TestOperatorLosesTheDevice has a built-in operator that loses the device, beside a user-written operator. The dead
// letter names the built-in operator.
func TestOperatorLosesTheDevice(t *testing.T) {
	eachMode(t, func(r *rig) {
		losses := times(3, 1)
		r.moody("moody,crc32c")
		r.failWorkers()
		r.set("MILLRACE_BATCH_PAYLOADS=64")
		r.ownFault("one of several operators loses the device", losses, times(4000, 600), lethal, operator.FaultDevice, "crc32c")
	})
}

// ownFault publishes payloads that lose the device, one among every n others. It checks that each of them becomes a
// dead letter that names the faulty operator, and that no other payload does. A later process must report the time of
// the fault.
func (r *rig) ownFault(name string, losses, n int, prefix, fault, blamed string) {
	r.serve(1)
	s := r.supervise()
	r.until("the worker is ready", func() bool { return s.current().isReady() })
	r.feed(losses*n, r.moods(n, prefix)).wait()
	r.awaitFinished()
	r.until("the worker after the last that ended is ready", func() bool { return s.current().isReady() })
	third := r.mustMetric(s.current(), `millrace_operator_third_last_fault_timestamp_seconds{operator="`+blamed+`"}`)
	s.retire()
	codes := s.exitCodes()
	for _, code := range codes {
		if code != exitLost {
			r.t.Errorf("workers ended with the statuses %v, want %d for all", codes, exitLost)
			break
		}
	}
	a := r.mustAudit(1)
	found := 0
	for letter, count := range r.deadLetters() {
		if letter.reason != "device_fault" || letter.operator != blamed || !strings.Contains(letter.text, "operator "+blamed+": ") {
			r.t.Errorf("%d dead letters say %+v, want a device_fault of %s", count, letter, blamed)
		}
		found += count
	}
	if found != losses || a.dead != losses {
		r.t.Errorf("%d dead letters of %d payloads, want %d", found, a.dead, losses)
	}
	noted := r.notedFaults()
	if noted[blamed+" "+fault] == 0 || len(noted) != 1 {
		r.t.Errorf("the consumers' metadata have the faults %v, want only %s %s", noted, blamed, fault)
	}
	// With exclusive delivery, only a payload in a batch of one is computed in steps. So fewer than three faults may be
	// known.
	if r.mode() == "shared" && len(codes) >= 4 && third == 0 {
		r.t.Errorf("after %d losses, the worker doesn't know when the third-last fault of %s was; noted: %v", len(codes), blamed, noted)
	}
	r.enter(name, losses, a)
}

// notedFaults counts the operator faults that processes have noted in the consumers' metadata.
func (r *rig) notedFaults() map[string]int {
	r.t.Helper()
	ctx := r.Ctx()
	stream, err := r.JS.Stream(ctx, inputStream)
	if err != nil {
		r.t.Fatal(err)
	}
	noted := map[string]int{}
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		for _, f := range inflight.ParseFaults(info.Config.Metadata[inflight.FaultNote]) {
			noted[f.Operator+" "+f.Fault]++
		}
	}
	if err := consumers.Err(); err != nil {
		r.t.Fatal(err)
	}
	return noted
}

// TestOwnOperatorIsNotUsable shows that a worker with an unusable operator takes no payload. It exits with status 2 and
// names the operator and the file to blame.
func TestOwnOperatorIsNotUsable(t *testing.T) {
	need(t)
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(t *testing.T, folder string)
		want   []string
	}{
		"no library": {func(t *testing.T, folder string) {
			if err := os.Remove(filepath.Join(folder, "moody.cpu.so")); err != nil {
				t.Fatal(err)
			}
		}, []string{"moody", "moody.cu", "worker operator build"}},
		"a source that was changed after the library was built": {func(t *testing.T, folder string) {
			write(t, filepath.Join(folder, "moody.cu"), []byte("nonsense"))
		}, []string{"moody.cpu.so", "another version of", "moody.cu", "worker operator build"}},
		"a library for a newer contract": {func(t *testing.T, folder string) {
			write(t, filepath.Join(folder, "moody.cpu.so"), needNewerContract(t, filepath.Join(folder, "moody.cpu.so")))
		}, []string{"moody.cpu.so", "moody", fmt.Sprintf("needs version %d of the operator contract", compiled.Contract+1), fmt.Sprintf("has version %d", compiled.Contract)}},
		"a library that is cut off": {func(t *testing.T, folder string) {
			text := read(t, filepath.Join(folder, "moody.cpu.so"))
			write(t, filepath.Join(folder, "moody.cpu.so"), text[:len(text)/2])
		}, []string{"moody.cpu.so"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "shared")
			folder := r.moody("moody")
			r.serve(1)
			c.damage(t, folder)
			w := r.startWorker()
			w.expected.Store(true)
			r.until("the worker has ended", w.hasEnded)
			if code := w.cmd.ProcessState.ExitCode(); code != 2 {
				t.Errorf("the worker ended with status %d, want 2", code)
			}
			for _, want := range c.want {
				if _, ok := w.said(want); !ok {
					t.Errorf("the worker doesn't say %q:\n%s", want, w.tail())
				}
			}
			if _, ok := r.state(inputStream); ok {
				t.Error("the worker has created the input stream")
			}
		})
	}
}

// TestOwnOperatorThatDoesNotCompile shows that the build command fails with the compiler's output, and leaves the old
// library unchanged.
func TestOwnOperatorThatDoesNotCompile(t *testing.T) {
	need(t)
	folder := t.TempDir()
	writeMoody(t, folder, "1", "false")
	library := read(t, filepath.Join(folder, "moody.cpu.so"))
	source := filepath.Join(folder, "moody.cu")
	write(t, source, []byte(strings.NewReplacer("ENDS", "false", "record.size() + VERSION", "records.size()", "VERSION", "1").Replace(moody)))
	out, err := exec.CommandContext(t.Context(), workerBinary, "operator", "build", source).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "moody.cu:") {
		t.Errorf("worker operator build: %v\n%s", err, out)
	}
	if !bytes.Equal(library, read(t, filepath.Join(folder, "moody.cpu.so"))) {
		t.Error("the library was changed")
	}
}

// needNewerContract returns a library that requires the next version of the contract.
func needNewerContract(t *testing.T, path string) []byte {
	t.Helper()
	library := read(t, path)
	const size, contract = 8, 16 // positions in struct millrace_description
	for at := 0; ; {
		next := bytes.Index(library[at:], []byte("MILLROP\x00"))
		if next < 0 {
			t.Fatal("the library has no description")
		}
		at += next
		if d := library[at:]; binary.LittleEndian.Uint32(d[size:]) < 1024 && binary.LittleEndian.Uint32(d[contract:]) <= compiled.Contract {
			binary.LittleEndian.PutUint32(d[contract:], compiled.Contract+1)
			return library
		}
		at++
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// write replaces a file. It doesn't disturb a process that uses the old file.
func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
