// Package inflight tracks each delivery of a worker from the pull to its acknowledgement.
//
// A Delivery is one delivery of an input message. Deliveries wait in a Queue, and a Batcher packs them into batches of
// a pipeline. A Batch keeps its deliveries until all of them are settled. A Frame is a message of many records, which
// package unpack splits. A Pool bounds the number and memory of deliveries, and keeps them alive at the server. A
// Window decides when a partly filled batch is submitted.
//
// Both delivery modes use this package. Package results stores results, and the modes acknowledge inputs. Start reading
// at Delivery, then Batch, then Pool.
package inflight
