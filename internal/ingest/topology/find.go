package topology

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/wildcard"
)

// DeadLetterStream returns the name of the stream that stores dead letters, or "" if there is none.
func DeadLetterStream(ctx context.Context, js jetstream.JetStream, l Topology) (string, error) {
	return streamOf(ctx, js, l.DeadLetterPrefix, l.Subjects)
}

// streamOf returns the name of the stream that stores messages published under prefix for inputs with these
// subjects. It is empty if there is none. If streams store only some of those messages, the error is a
// *partlyStored, because no other stream can then store overlapping subjects.
func streamOf(ctx context.Context, js jetstream.JetStream, prefix string, inputs []string) (string, error) {
	first, none := "", ""
	for _, wanted := range mappedFilters(prefix, inputs) {
		switch name, err := streamCovering(ctx, js, wanted); {
		case err != nil:
			return "", err
		case name == "":
			none = wanted
		case first == "":
			first = name
		}
	}
	if first != "" && none != "" {
		return "", &partlyStored{stream: first, subject: none}
	}
	return first, nil
}

// streamCovering returns the name of the stream that stores every subject that matches wanted, or "" without one.
func streamCovering(ctx context.Context, js jetstream.JetStream, wanted string) (string, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the listing when the stream is found
	defer cancel()
	partly := ""
	streams := js.ListStreams(ctx, jetstream.WithStreamListSubject(wanted))
	for info := range streams.Info() {
		for _, subject := range info.Config.Subjects {
			if wildcard.Covers(subject, wanted) {
				return info.Config.Name, nil
			}
		}
		partly = info.Config.Name
	}
	if err := streams.Err(); err != nil {
		return "", fmt.Errorf("find the stream for %q: %w", wanted, err)
	}
	if partly != "" {
		return "", &partlyStored{stream: partly, subject: wanted}
	}
	return "", nil
}

// partlyStored means that a stream stores some of the required subjects, and no stream stores the remaining ones.
type partlyStored struct{ stream, subject string }

func (e *partlyStored) Error() string {
	return fmt.Sprintf("stream %q does not store all of %q, and no other stream does: add the subject to it, or choose another prefix",
		e.stream, e.subject)
}
