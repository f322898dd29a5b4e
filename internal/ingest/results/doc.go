// Package results publishes the results of batches, and the dead letters of payloads that are given up.
//
// A Writer encodes a batch, publishes its results until each is stored, and notifies the delivery mode through a Sink, which then
// acknowledges. Every message has an id, so the stream drops duplicates within its duplicate window. A message that may be older
// than that window is looked up first (clearance.go, adr/0032).
//
// Both delivery modes use this package. Start reading at Writer.Settle.
package results
