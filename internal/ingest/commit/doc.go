// Package commit stores the results and dead letters of exclusive delivery exactly once. Each batch of a partition is
// stored with a commit marker. The marker is a message with the position up to which every input is settled. The server
// accepts a batch only if the partition's last marker is the expected one. A new owner first stores its own marker, a
// fence. From then on, the server refuses the batches of earlier owners.
//
// A Chain is the sequence of markers of one partition in one stream. The results have a chain, and the dead letters
// have another one if they have their own stream. A chain accesses the server through a Store. Stream implements Store,
// and the model test of package partitioned simulates it. Start reading at Open, then Chain.Commit. adr/0046 gives the
// reasons for the design.
package commit
