// Package inflight holds what a worker has in flight: each delivery from the pull to its acknowledgement.
//
// A Delivery is one input message. Deliveries wait in a Queue, a Batcher packs them into batches of a pipeline, and a Batch keeps
// them until the last of them is settled. A Frame is a message of many records, which package unpack finds. A Pool bounds the number
// and memory of deliveries, and keeps them alive at the server. A Window decides when a batch that is not full should be submitted.
//
// Both delivery modes use this package. It stores nothing and acknowledges nothing: package results and the modes do. Start
// reading at Delivery, then Batch, then Pool.
package inflight
