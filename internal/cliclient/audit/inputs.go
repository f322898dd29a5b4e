package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"millrace/internal/cliclient"
	"millrace/internal/ingest/jsapi"
	"millrace/internal/ingest/topology"
	"millrace/internal/wildcard"
)

// inputs holds the state of the input stream and of the deployment's consumers.
type inputs struct {
	js       jetstream.JetStream
	topology topology.Topology

	info      *jetstream.StreamInfo
	consumers []*jetstream.ConsumerInfo // by partition, or the only one; nil for a missing consumer
}

// errRecreated is the error if the stream was recreated during the audit.
var errRecreated = errors.New("it was deleted and created again during the audit")

func (in *inputs) read(ctx context.Context) error {
	info, err := cliclient.StreamInfo(ctx, in.js, in.topology.Stream)
	if err != nil {
		return err
	}
	if in.info != nil && !info.Created.Equal(in.info.Created) {
		return fmt.Errorf("stream %s: %w", in.topology.Stream, errRecreated)
	}
	in.info = info
	return nil
}

func (in *inputs) readConsumers(ctx context.Context) error {
	for _, name := range in.topology.Consumers() {
		c, err := in.js.Consumer(ctx, in.topology.Stream, name)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			in.consumers = append(in.consumers, nil)
		case err != nil:
			return fmt.Errorf("consumer %s: %w", name, err)
		default:
			in.consumers = append(in.consumers, c.CachedInfo())
		}
	}
	return nil
}

// covers reports whether the deployment reads every message of the stream.
func (in *inputs) covers() bool {
	subjects := in.info.Config.Subjects
	return len(subjects) > 0 && !slices.ContainsFunc(subjects, func(s string) bool { return !in.reads(s) })
}

// reads reports whether the deployment reads all messages that match subject, in the form that publishers use.
func (in *inputs) reads(subject string) bool {
	return slices.ContainsFunc(in.topology.Filters(), func(filter string) bool { return wildcard.Covers(filter, subject) })
}

// consumer returns the index of the consumer that reads messages with the stored subject stored, or -1 if there is
// none.
func (in *inputs) consumer(stored string) int {
	p := 0
	if in.topology.Exclusive {
		number, subject, _ := strings.Cut(stored, ".")
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n >= in.topology.Partitions {
			return -1
		}
		p, stored = n, subject
	}
	if !in.reads(stored) {
		return -1
	}
	return p
}

// settled returns the highest sequence up to which all consumers have acknowledged everything. It returns 0 if a
// consumer is missing.
func (in *inputs) settled() uint64 {
	sequence := in.info.State.LastSeq
	for _, c := range in.consumers {
		if c == nil {
			return 0
		}
		sequence = min(sequence, c.AckFloor.Stream)
	}
	return sequence
}

// decided returns the highest sequence that a consumer may have acknowledged.
func (in *inputs) decided() (sequence uint64) {
	for _, c := range in.consumers {
		if c == nil {
			continue
		}
		if sequence = max(sequence, c.AckFloor.Stream); !in.topology.Exclusive {
			sequence = max(sequence, c.Delivered.Stream)
		}
	}
	return sequence
}

// beganLate reports whether the deployment may have missed the first inputs of the stream.
func (in *inputs) beganLate() bool {
	const together = time.Minute // maximum time between the creation of the stream and its consumers by one deployment
	for _, c := range in.consumers {
		if c == nil || c.Created.After(in.info.Created.Add(together)) || c.Config.DeliverPolicy != jetstream.DeliverAllPolicy {
			return true
		}
	}
	return false
}

// around returns the sequences of the last message before a time and of the first message at that time or later. A
// sequence is 0 if the stream has no such message.
func (in *inputs) around(ctx context.Context, at time.Time) (before, after uint64, err error) {
	low, high := max(in.info.State.FirstSeq, 1), in.info.State.LastSeq+1
	for low < high {
		middle := low + (high-low)/2
		m, err := in.next(ctx, middle)
		switch {
		case err != nil:
			return 0, 0, err
		case m == nil || m.Sequence >= high:
			high = middle
		case m.Time.Before(at):
			before, low = m.Sequence, m.Sequence+1
		default:
			after, high = m.Sequence, middle
		}
	}
	return before, after, nil
}

// next returns the first message with at least the sequence from, or nil if there is none.
func (in *inputs) next(ctx context.Context, from uint64) (*jetstream.RawStreamMsg, error) {
	m, err := jsapi.Next(ctx, in.js, in.topology.Stream, from, ">")
	if err != nil {
		return nil, fmt.Errorf("read message %d of stream %s: %w", from, in.topology.Stream, err)
	}
	return m, nil
}

const (
	// readingAtOnce is the maximum number of concurrent requests for messages.
	readingAtOnce = 32

	// block is the maximum number of messages that subjects reads.
	block = 1024
)

// subjects returns the subjects of the messages from first to last, at most block. A missing message has an empty
// subject.
func (in *inputs) subjects(ctx context.Context, first, last uint64) ([]string, error) {
	found := make([]string, last-first+1)
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(readingAtOnce)
	for i := range found {
		sequence := first + uint64(i)
		reads.Go(func() error {
			m, err := in.next(ctx, sequence)
			if m != nil && m.Sequence == sequence {
				found[i] = m.Subject
			}
			return err
		})
	}
	return found, reads.Wait()
}
