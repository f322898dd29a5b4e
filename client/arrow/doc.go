// Package arrow builds frames for a worker with MILLRACE_FRAMING=arrow, and reads the results of one with
// MILLRACE_RESULT_FORMAT=arrow. It is apart from package millrace/client because it needs the Arrow library. A program that has Arrow
// record batches already needs neither: it writes them with the library's ipc.Writer and reads results with its ipc.Reader.
//
// Start reading with Frame and Decode. docs/results.md in Millrace's repository specifies the columns of a result.
package arrow
