package topology

import "strconv"

// ExactlyOnce is the setting for exactly-once results and dead letters with exclusive delivery.
type ExactlyOnce int

const (
	Auto     ExactlyOnce = iota // exactly once in streams that support commit markers, otherwise once within the duplicate window
	Required                    // exactly once; the worker doesn't start if a stream doesn't support commit markers
	Off                         // once within the duplicate window
)

// Commits is the kind of commit that stores a batch with its commit marker.
type Commits int

const (
	NoCommits     Commits = iota // no markers; a message is stored once within the duplicate window
	FastCommits                  // fast batches; the first message depends on the previous marker, and the last message is the new marker
	AtomicCommits                // atomic batches; the server stores all messages and the marker, or nothing
)

// CommitSubject returns the subject of a partition's commit markers in a stream. Two streams can't have the same subject, so the
// subject includes the name of the stream.
func CommitSubject(prefix, stream, input, consumer string, partition int) string {
	return prefix + "." + stream + "." + input + "." + consumer + "." + strconv.Itoa(partition)
}

// CommitSubjects returns the filter that matches every result of CommitSubject for a stream.
func CommitSubjects(prefix, stream string) string { return prefix + "." + stream + ".>" }
