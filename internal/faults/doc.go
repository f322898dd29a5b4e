// Package faults shows what a worker survives, on real processes: servers and workers are killed, cut off, refused
// and flooded, and at the end every input must have exactly one right result or one dead letter. It is tests alone.
//
// `go test ./internal/faults` injects each fault a few times. `make faults` injects it as often as it takes to
// believe, and prints a record. A failure prints its seed; MILLRACE_FAULTS_SEED runs it again. One test has a real
// Prometheus look on: see docs/alerts.md.
package faults
