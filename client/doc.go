// Package client reads the results that a Millrace worker publishes, and writes the messages that it reads. It is for programs on
// the other side of the streams, in Go. It needs only the standard library and leaves the choice of a NATS client to you.
//
// To read results, start with Decode for MILLRACE_RESULT_FORMAT=binary, and with Lines for json. For arrow, use package
// millrace/client/arrow. If a result has a Content-Encoding, decompress its body first. The headers of a result tell which input it
// belongs to: see InputOf. A Collector puts results in several messages together.
//
// To send many records in one message, start with AppendNewline, AppendLength or AppendVarint, one for each value of
// MILLRACE_FRAMING.
//
// docs/results.md in Millrace's repository specifies the formats, and docs/protocol.md says how another module imports this package.
package client
