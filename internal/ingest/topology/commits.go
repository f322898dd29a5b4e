package topology

import "strconv"

// ExactlyOnce is the setting for how exclusive delivery stores results and dead letters.
type ExactlyOnce int

const (
	Auto     ExactlyOnce = iota // exactly once in streams that support commit markers, otherwise once within the duplicate window
	Required                    // exactly once; the worker doesn't start if a stream doesn't support commit markers
	Off                         // once within the duplicate window
)

// Commits is the way of storing the messages of a batch with the batch's commit marker.
type Commits int

const (
	NoCommits     Commits = iota // no markers; a message is stored once within the duplicate window
	FastCommits                  // fast batches; the first message depends on the last marker, and the batch's own marker is the last message
	AtomicCommits                // atomic batches; the messages and the marker are stored all or none
)

// CommitSubject returns the subject of a partition's commit markers in a stream. Two streams can't have the same subject, so the
// subject includes the name of the stream.
func CommitSubject(prefix, stream, input, consumer string, partition int) string {
	return prefix + "." + stream + "." + input + "." + consumer + "." + strconv.Itoa(partition)
}

// CommitSubjects returns the filter that matches every result of CommitSubject for a stream.
func CommitSubjects(prefix, stream string) string { return prefix + "." + stream + ".>" }
