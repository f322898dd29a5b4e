package ingest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// partitionTransform is how a stream puts the number of the partition before each subject: the same subject always gets
// the same one.
func partitionTransform(partitions int) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{Source: ">", Destination: fmt.Sprintf("{{partition(%d)}}.>", partitions)}
}

// partitionFilters are the subjects of a partition, as the stream stores them.
func partitionFilters(p int, subjects []string) []string {
	filters := make([]string, len(subjects))
	for i, s := range subjects {
		filters[i] = strconv.Itoa(p) + "." + s
	}
	return filters
}

// partitionConsumerConfig is the consumer of a partition.
func partitionConsumerConfig(o Options, p int) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable: partitionConsumer(o.Consumer, p), FilterSubjects: partitionFilters(p, o.Subjects),
		AckPolicy: jetstream.AckAllPolicy, AckWait: o.AckWait, MaxAckPending: o.MaxAckPending, MaxDeliver: -1,
		PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{priorityGroup}, PinnedTTL: pinnedFor,
		Description: provisioned,
	}
}

func createPartitionConsumers(ctx context.Context, js jetstream.JetStream, o Options) error {
	for p := range o.Partitions {
		c := partitionConsumerConfig(o, p)
		_, err := js.Consumer(ctx, o.Stream, c.Durable)
		switch {
		case err == nil:
			continue
		case !errors.Is(err, jetstream.ErrConsumerNotFound):
			return fmt.Errorf("look up consumer %q: %w", c.Durable, err)
		}
		if _, err := js.CreateConsumer(ctx, o.Stream, c); err != nil {
			return fmt.Errorf("create consumer %q on stream %q for %v: %w: exclusive delivery needs nats-server 2.14 or later",
				c.Durable, o.Stream, c.FilterSubjects, err)
		}
	}
	o.Logger.Info("has the partitions' consumers", "stream", o.Stream, "partitions", o.Partitions,
		"consumers", partitionConsumer(o.Consumer, 0)+" ...")
	return nil
}
