// Package plan implements the subcommand "worker plan". It needs no GPU.
//
// Textbook computes the timetable of a schedule. It contains no formula for a pipeline. Instead, it runs the worker's
// scheduling code (package streams) on the virtual clock of package sim: first batches one after another, and then
// overlapped. Each of the three stages takes a given number of time units.
//
// Cluster computes from measured figures how many streams, servers, workers and GPUs a load needs.
package plan
