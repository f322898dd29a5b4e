// Package faults tests with real processes that a worker survives faults. The tests kill and disconnect servers and
// workers, make servers refuse messages, and flood them. At the end, every input must have exactly one correct result or
// one dead letter. The package has only tests.
//
// MILLRACE_FAULTS selects the scope of the tests. Without it, all tests are skipped. `make faults` injects each fault a
// few times. `make faults-ci` injects only the faults in inCI. `make faults-full` injects each fault often enough for a
// reliable result, and prints a record. A failed test prints its seed. Set MILLRACE_FAULTS_SEED to repeat the run. One
// test uses a real Prometheus (see docs/alerts.md).
package faults
