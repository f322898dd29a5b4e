// Package plan shows how long a schedule takes, slot by slot, without a GPU. It contains no formula for a pipeline: it runs the
// worker's own scheduling code, package streams, on the virtual clock of package sim.
//
// The subcommand "worker plan" uses it. Start reading with Textbook, which runs batches whose three stages take a given number
// of units each, first one after another and then overlapped. It does the same with one payload that is cut into chunks.
package plan
