// Package faults tests with real processes that a worker survives faults. Servers and workers are killed, disconnected,
// refused and flooded. At the end every input must have exactly one correct result or one dead letter. The package has
// only tests.
//
// MILLRACE_FAULTS selects a form of the tests. Without it all are skipped. `make faults` injects each fault a few times, and `make faults-ci`
// does so for the faults in inCI. `make faults-full` injects each fault often enough for a reliable result, and prints a record. A failure
// prints its seed; set MILLRACE_FAULTS_SEED to repeat the run. One test uses a real Prometheus: see docs/alerts.md.
package faults
