// Package commit makes what exclusive delivery stores exactly once. Each batch of a partition is stored with a commit marker: a message
// that says up to which input everything is settled. Every batch is conditional on the partition's last marker, so a new owner that has
// stored its own marker, a fence, knows that no earlier owner can store anything now.
//
// A Chain is the sequence of markers of one partition in one stream. The results have a chain, and the dead letters have one if they have
// their own stream. Store is what a chain needs of the server, and Stream implements it. The model test of package partitioned
// simulates it. Start reading at Open, then Chain.Commit. The reasons are in adr/0046.
package commit
