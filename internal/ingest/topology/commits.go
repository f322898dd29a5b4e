package topology

import "strconv"

// ExactlyOnce says whether exclusive delivery stores results and dead letters exactly once.
type ExactlyOnce int

const (
	Auto     ExactlyOnce = iota // exactly once in streams that take commit markers, otherwise once within the duplicate window
	Required                    // the worker doesn't start if a stream takes no commit markers
	Off                         // once within the duplicate window
)

// Commits says how a stream stores the messages of a batch together with the batch's commit marker.
type Commits int

const (
	NoCommits     Commits = iota // no markers: a message is stored once within the duplicate window
	FastCommits                  // fast batches: the first message depends on the last marker, and the batch's own marker comes last
	AtomicCommits                // atomic batches: all messages and the marker are stored, or none
)

// CommitSubject returns the subject of a partition's commit markers in a stream. Two streams can't have the same subject, so the
// subject names the stream that stores the markers.
func CommitSubject(prefix, stream, input, consumer string, partition int) string {
	return prefix + "." + stream + "." + input + "." + consumer + "." + strconv.Itoa(partition)
}

// CommitSubjects returns the filter that matches every result of CommitSubject for a stream.
func CommitSubjects(prefix, stream string) string { return prefix + "." + stream + ".>" }
