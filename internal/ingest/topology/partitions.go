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

	// PinnedFor is how long the server keeps a partition for a worker that sends no requests. It bounds how long a
	// partition has no owner after its worker died. Workers send requests three times as often.
	PinnedFor = 3 * time.Second
)

// MarkDelivered is the key in the metadata of a partition's consumer for the highest stream sequence that it is known to have
// delivered. After a crash of the server or a reset by an administrator, the consumer's own state may have less.
const MarkDelivered = "millrace-delivered"

// PartitionConsumer returns the name of a partition's consumer.
func PartitionConsumer(consumer string, p int) string { return consumer + "-" + strconv.Itoa(p) }

// PartitionSubject removes the partition from a subject as the stream stores it.
func PartitionSubject(stored string) string {
	_, subject, _ := strings.Cut(stored, ".")
	return subject
}

// partitionTransform returns the transform that puts the number of the partition before each subject. The same
// subject always gets the same number.
func partitionTransform(partitions int) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{Source: ">", Destination: fmt.Sprintf("{{partition(%d)}}.>", partitions)}
}

// partitionFilters returns the subjects of a partition as the stream stores them.
func partitionFilters(p int, subjects []string) []string {
	filters := make([]string, len(subjects))
	for i, s := range subjects {
		filters[i] = strconv.Itoa(p) + "." + s
	}
	return filters
}

// partitionConsumerConfig returns the configuration of a partition's consumer.
func partitionConsumerConfig(l Topology, p int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: PartitionConsumer(l.Consumer, p), FilterSubjects: partitionFilters(p, l.Subjects),
		AckPolicy: jetstream.AckAllPolicy, AckWait: l.AckWait, MaxAckPending: l.MaxAckPending, MaxDeliver: -1,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{PriorityGroup}, PinnedTTL: PinnedFor,
		Description: provisioned, Metadata: map[string]string{MarkDelivered: "0"},
	}
}

func createPartitionConsumers(ctx context.Context, js jetstream.JetStream, l Topology, log *slog.Logger) (err error) {
	var made []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range made { // an incomplete set is useless, and would count towards a stream's max_consumers
			if gone := js.DeleteConsumer(context.WithoutCancel(ctx), l.Stream, name); gone != nil {
				err = fmt.Errorf("%w; and consumer %q, which was created before, could not be deleted: %w", err, name, gone)
			}
		}
	}()
	for p := range l.Partitions {
		c := partitionConsumerConfig(l, p)
		_, err := js.Consumer(ctx, l.Stream, c.Durable)
		switch {
		case err == nil:
			continue
		case !errors.Is(err, jetstream.ErrConsumerNotFound):
			return fmt.Errorf("look up consumer %q: %w", c.Durable, err)
		}
		if _, err := js.CreateConsumer(ctx, l.Stream, c); err != nil {
			return fmt.Errorf("create consumer %q on stream %q for %v: %w: check how many consumers the stream and the account allow; exclusive "+
				"delivery needs nats-server 2.14 or later, and this is %s", c.Durable, l.Stream, c.FilterSubjects, err, js.Conn().ConnectedServerVersion())
		}
		made = append(made, c.Durable)
	}
	log.Info("the partitions' consumers exist", "stream", l.Stream, "partitions", l.Partitions,
		"consumers", PartitionConsumer(l.Consumer, 0)+" ...")
	return nil
}
