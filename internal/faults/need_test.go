package faults

import (
	"strings"
	"sync"
	"testing"
)

// inCI lists the tests that CI runs in a separate step: one or two of each kind of fault, in both delivery modes. `make
// faults` runs all tests.
var inCI = []string{
	"TestWorkerKilled/of_1/shared",
	"TestWorkerKilled/of_3/exclusive",
	"TestConnectionCut/shared",
	"TestConnectionCut/exclusive",
	"TestServerRestarted/shared",
	"TestServerRestarted/exclusive",
	"TestClusterLeaderKilled/shared",
	"TestClusterLeaderKilled/exclusive",
	"TestExactlyOnceWorkerKilled/R1",
	"TestExactlyOnceWorkerKilled/R3",
	"TestExactlyOnceWorkerFrozen/R1",
	"TestVerdictsAfterManyKills/R1_with_state",
	"TestVerdictsAfterManyKills/R3_with_state",
	"TestVerdictsWithPoison",
	"TestStateIsLost/a_log_that_was_purged",
	"TestStateLosesAnIdleDevice",
	"TestVerdictsAfterDeviceLoss/state",
	"TestPartitionsChangeUnderAState/8_to_1",
	"TestLoadVerdictsOfFailingRecords/R1",
	"TestWorkerFrozenBeyondTheWindow/shared",
	"TestFramesWithAPoisonRecord/shared",
	"TestFramesWithAPoisonRecord/exclusive",
	"TestDeviceHangs/shared",
	"TestDeviceHangs/exclusive",
	"TestForgedHeaders/shared",
	"TestForgedHeaders/exclusive",
	"TestLoadAllWorkersKilled/R1/shared",
	"TestLoadAllWorkersKilled/R1/exclusive",
	"TestLoadShardsWorkersKilled/R1/exclusive",
	"TestMemoryIsBounded/256_bytes_and_the_defaults/exclusive",
	"TestMemoryIsBounded/large/shared",
}

// need skips a test, or a group of tests, unless the form includes it. Every test must call need first.
func need(t testing.TB) {
	t.Helper()
	switch {
	case form == "":
		t.Skip("SKIPPED: FAULTS ON REAL PROCESSES; RUN make faults")
	case form == formCI && !isInCI(t.Name()):
		t.Skip("SKIPPED: NOT ONE OF THE FAULTS THAT CI INJECTS; RUN make faults")
	}
}

// came holds the names that were passed to isInCI.
var came struct {
	mu    sync.Mutex
	names map[string]bool
}

// isInCI reports whether inCI contains the test, or a test in the group with that name. It also records the name in
// came.
func isInCI(name string) bool {
	came.mu.Lock()
	defer came.mu.Unlock()
	if came.names == nil {
		came.names = map[string]bool{}
	}
	came.names[name] = true
	for _, each := range inCI {
		if each == name || strings.HasPrefix(each, name+"/") {
			return true
		}
	}
	return false
}

// missed returns the names in inCI that don't exist as tests. It returns nil if -run has selected tests.
func missed(selected string) (names []string) {
	came.mu.Lock()
	defer came.mu.Unlock()
	for _, each := range inCI {
		if selected == "" && !came.names[each] {
			names = append(names, each)
		}
	}
	return names
}
