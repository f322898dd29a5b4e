// Package results publishes the results of batches, and the dead letters of payloads that are given up.
//
// A Writer encodes a batch, publishes its results until each is stored, and notifies the delivery mode through a Sink. The Sink
// acknowledges the inputs. Every message has an id, so the stream drops duplicates within its duplicate window. If a stored copy
// of a message may be older than that window, the Writer looks it up first (clearance.go, adr/0032).
//
// Start reading at Writer.Settle.
package results
