// Package plan computes the timetable of a schedule without a GPU. It contains no formula for a pipeline. Instead, it
// runs the worker's scheduling code (package streams) on the virtual clock of package sim.
//
// The subcommand "worker plan" uses the package. Start reading with Textbook. It first runs batches one after another
// and then overlapped. Each of the three stages takes a given number of time units.
package plan
