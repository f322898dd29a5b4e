// Package exchange sends payloads to the input stream, and prints results and dead letters, for people who have no other NATS tool. The
// commands `worker send` and `worker results` are its only users. Programs use a NATS client and package millrace/client.
//
// Start reading at Sender.Send, which takes payloads from Payloads, and at Printer.Print.
package exchange
