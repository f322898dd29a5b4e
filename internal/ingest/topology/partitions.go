package topology

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// PriorityGroup is the group in which workers pull from a partition's consumer.
	PriorityGroup = "millrace"

	// PinnedFor is the time for which the server keeps a partition for a worker that sends no requests. It bounds the time without
	// an owner after a worker has died. Workers send three requests in that time.
	PinnedFor = 3 * time.Second
)

// MarkDelivered is a key in the metadata of a partition's consumer. Its value is the highest stream sequence that the consumer is
// known to have delivered. After a crash of the server or a reset by an administrator, the consumer's own state may be older.
const MarkDelivered = "millrace-delivered"

// PartitionConsumer returns the name of a partition's consumer.
func PartitionConsumer(consumer string, p int) string { return consumer + "-" + strconv.Itoa(p) }

// PartitionSubject removes the partition from a stored subject.
func PartitionSubject(stored string) string {
	_, subject, _ := strings.Cut(stored, ".")
	return subject
}

// partitionTransform returns the transform that puts the partition's number before each subject. A subject always gets the same
// number.
func partitionTransform(partitions int) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{Source: ">", Destination: fmt.Sprintf("{{partition(%d)}}.>", partitions)}
}

// partitionFilters returns the stored subjects of a partition.
func partitionFilters(p int, subjects []string) []string {
	filters := make([]string, len(subjects))
	for i, s := range subjects {
		filters[i] = strconv.Itoa(p) + "." + s
	}
	return filters
}

func partitionConsumerConfig(l Topology, p int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: PartitionConsumer(l.Consumer, p), FilterSubjects: partitionFilters(p, l.Subjects),
		AckPolicy: jetstream.AckAllPolicy, AckWait: l.AckWait, MaxAckPending: l.MaxAckPending, MaxDeliver: -1,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{PriorityGroup}, PinnedTTL: PinnedFor,
		Description: provisioned, Metadata: map[string]string{MarkDelivered: "0"},
	}
}

// createPartitionConsumers creates the missing consumers, unless the stream doesn't allow that many. After any other error, the
// created consumers stay, because another worker may already use them. The next attempt creates the remaining ones.
func createPartitionConsumers(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) error {
	missing, err := missingPartitionConsumers(ctx, js, l)
	if err != nil {
		return err
	}
	for _, c := range missing {
		if _, err := js.CreateConsumer(ctx, l.Stream, c); err != nil {
			return fmt.Errorf("create consumer %q on stream %q for %v: %w: check how many consumers the stream and the account allow; exclusive "+
				"delivery needs nats-server 2.14 or later, and this is %s", c.Durable, l.Stream, c.FilterSubjects, err, js.Conn().ConnectedServerVersion())
		}
	}
	log.Info("the partitions' consumers exist", "stream", l.Stream, "partitions", l.Partitions,
		"consumers", PartitionConsumer(l.Consumer, 0)+" ...")
	return nil
}

// missingPartitionConsumers returns the configurations of the missing consumers. It returns an error if the stream doesn't allow
// that many, because an incomplete set of consumers is useless.
func missingPartitionConsumers(ctx context.Context, js jetstream.JetStream, l Topology) (missing []jetstream.ConsumerConfig, err error) {
	for p := range l.Partitions {
		c := partitionConsumerConfig(l, p)
		switch _, err := js.Consumer(ctx, l.Stream, c.Durable); {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			missing = append(missing, c)
		case err != nil:
			return nil, fmt.Errorf("look up consumer %q: %w", c.Durable, err)
		}
	}
	s, err := js.Stream(ctx, l.Stream)
	if err != nil {
		return nil, fmt.Errorf("look up stream %q: %w", l.Stream, err)
	}
	info := s.CachedInfo()
	if limit, there := info.Config.MaxConsumers, info.State.Consumers; limit > 0 && there+len(missing) > limit {
		return nil, fmt.Errorf("create %d consumers on stream %q, which has %d: its maximum consumers limit is %d: raise how many consumers it allows, or "+
			"lower MILLRACE_PARTITIONS", len(missing), l.Stream, there, limit)
	}
	return missing, nil
}
