//go:build cgo

package cuda

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/internal/device"
)

// maxLanes is the number of lanes that must not delay the clock and the probe. It is the maximum that the
// documentation recommends.
const maxLanes = 8

// TestMain requests as many hardware queues as a worker with maxLanes lanes, before any test uses CUDA.
func TestMain(m *testing.M) {
	if err := AskConnections(maxLanes + 3); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// The clock's anchors and the probe complete while all streams of eight lanes, and all shared streams, run a kernel
// that doesn't end. So no hardware queue places them behind that kernel.
func TestClockIsNotQueuedBehindLanes(t *testing.T) {
	library := os.Getenv("MILLRACE_KERNELS")
	if library == "" {
		library = filepath.Join("..", "..", "..", "kernels", "build", libraryName)
	}
	all, err := List(library)
	if err != nil || len(all) == 0 {
		message := fmt.Sprintf("THE CLOCK OF A GPU IS NOT TESTED: NO GPU OR NO LIBMILLRACE.SO HERE: %v", err)
		if os.Getenv("MILLRACE_REQUIRE_GPU") == "1" {
			t.Fatal(message + " (MILLRACE_REQUIRE_GPU=1 MAKES THIS A FAILURE)")
		}
		t.Skip(message + " (SET MILLRACE_REQUIRE_GPU=1 TO FAIL INSTEAD)")
	}
	for _, info := range all {
		t.Run(info.ID, func(t *testing.T) { clockIsFree(t, library, info) })
	}
}

func clockIsFree(t *testing.T, library string, info device.Info) {
	opened, err := Open(Options{Library: library, Ordinal: info.Ordinal})
	if err != nil {
		t.Fatal(err)
	}
	d := opened.(*gpu)
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range maxLanes + 3 {
		s, err := d.NewStream(fmt.Sprintf("stream-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		open, err := d.Gate(s)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			open()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a gate opens by itself after ten seconds
	defer cancel()
	if err := d.Check(ctx); err != nil {
		t.Errorf("the probe: %v", err)
	}
	d.clock.mu.Lock()
	defer d.clock.mu.Unlock()
	for range 10 {
		before, after, reached, err := d.clock.record(d, 1-d.clock.current, 5*time.Second)
		if err != nil || !reached {
			t.Fatalf("an anchor was not reached within %v of work that does not end: %v", after-before, err)
		}
	}
}
