package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"millrace/internal/ingest/natstest"
)

// The forms of the tests, which MILLRACE_FAULTS selects. Without it, every test is skipped.
const (
	formCI    = "ci"    // the tests of inCI, in the short form
	formShort = "short" // every test injects its fault a few times
	formFull  = "full"  // every test injects its fault often enough for a reliable result, which takes 20 minutes
)

var form = os.Getenv("MILLRACE_FAULTS")

// programs is a folder with the programs under test, for machines without Go. It contains worker, nats-server, and faulty-worker for
// tests that call failWorkers. If programs is empty, the tests build them.
var programs = os.Getenv("MILLRACE_FAULTS_PROGRAMS")

// modes are the delivery modes (MILLRACE_DELIVERY) for which every fault is injected.
var modes = []string{"shared", "exclusive"}

// The paths of the programs under test, which are built once.
var workerBinary, serverBinary string

// atOnce is the default number of tests that run in parallel. Tests mostly wait, so the number doesn't depend on the
// number of processors.
const atOnce = 6

func TestMain(m *testing.M) {
	switch form {
	case "":
		os.Exit(m.Run()) // need skips every test
	case formCI, formShort, formFull:
		os.Exit(buildAndRun(m))
	}
	fmt.Fprintf(os.Stderr, "MILLRACE_FAULTS=%s: set %s, %s or %s\n", form, formCI, formShort, formFull)
	os.Exit(1)
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "millrace-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system cleans its temporary folder
	workerBinary, serverBinary = program(dir, "worker"), program(dir, "nats-server")
	for _, b := range []struct{ binary, from string }{
		{workerBinary, "millrace/cmd/worker"},
		{serverBinary, "github.com/nats-io/nats-server/v2"},
	} {
		if err := build(b.binary, b.from); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	go nurse()
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil { // the flag -parallel overrides the default
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if left := missed(flag.Lookup("test.run").Value.String()); form == formCI && code == 0 && len(left) > 0 {
		fmt.Fprintf(os.Stderr, "inCI names tests that did not run: %q\n", left)
		return 1
	}
	return code
}

// program returns the path of a program. A built program is in the folder dir.
func program(dir, name string) (path string) {
	if programs != "" {
		dir = programs
	}
	return filepath.Join(dir, name)
}

// build builds a program, unless the folder programs has it.
func build(binary, from string, flags ...string) error {
	if programs != "" {
		_, err := os.Stat(binary)
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), natstest.Patience)
	defer cancel()
	args := append(append([]string{"build", "-buildvcs=false", "-o", binary}, flags...), from)
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build %s: %w\n%s", from, err, out)
	}
	return nil
}

// buildFaulty builds, once, a worker with the tag faults. Tests can make its device and its operators fail.
var buildFaulty = sync.OnceValues(func() (binary string, err error) {
	binary = program(filepath.Dir(workerBinary), "faulty-worker")
	return binary, build(binary, "millrace/cmd/worker", "-tags=faults")
})

// failWorkers makes the rig start workers that buildFaulty built.
func (r *rig) failWorkers() {
	r.t.Helper()
	binary, err := buildFaulty()
	if err != nil {
		r.t.Fatal(err)
	}
	r.binary = binary
}

// isFull reports whether the form is full. Then each fault is injected often enough for a reliable result.
func isFull() bool { return form == formFull }

// times returns the number of times to inject a fault, or the number of payloads: full in the full form, short
// otherwise.
func times(full, short int) int {
	if isFull() {
		return full
	}
	return short
}
