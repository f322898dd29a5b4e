package faults

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// modes are the delivery modes (MILLRACE_DELIVERY) for which every fault is injected.
var modes = []string{"shared", "exclusive"}

// The programs under test, built once.
var workerBinary, serverBinary string

// buildTimeout bounds the building of one program on a machine that has built nothing yet.
const buildTimeout = 5 * time.Minute

// atOnce is the default number of tests that run at once. They mostly wait, so it doesn't depend on the number of
// processors.
const atOnce = 6

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "millrace-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in the system's temporary folder
	workerBinary, serverBinary = filepath.Join(dir, "worker"), filepath.Join(dir, "nats-server")
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
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil { // unless -parallel says otherwise
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build(binary, from string, flags ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	args := append(append([]string{"build", "-buildvcs=false", "-o", binary}, flags...), from)
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build %s: %w\n%s", from, err, out)
	}
	return nil
}

// isFull reports whether to inject each fault often enough for a reliable result, which takes 20 minutes.
func isFull() bool { return os.Getenv("MILLRACE_FAULTS") == "full" }

// times returns how often to inject a fault, or with how many payloads.
func times(full, short int) int {
	if isFull() {
		return full
	}
	return short
}
