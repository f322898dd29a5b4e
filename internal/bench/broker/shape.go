package broker

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// shape describes how the input stream is partitioned, and which consumers it has.
type shape uint8

const (
	whole       shape = iota // one consumer for all subjects, as for shared delivery
	pinned                   // partitions with pinned consumers, as for exclusive delivery
	partitioned              // partitions with consumers that any client may pull from
	bare                     // no consumer: the worker creates its own
)

// consumers returns the consumers of the input stream.
func (s *server) consumers(ctx context.Context) ([]jetstream.Consumer, error) {
	stream, err := s.js.Stream(ctx, s.in)
	if err != nil {
		return nil, err
	}
	var all []jetstream.Consumer
	names := stream.ConsumerNames(ctx)
	for name := range names.Name() {
		c, err := stream.Consumer(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look up consumer %s: %w", name, err)
		}
		all = append(all, c)
	}
	if err := names.Err(); err != nil {
		return nil, fmt.Errorf("list the consumers of stream %s: %w", s.in, err)
	}
	return all, nil
}

// inputs maps each consumer to its share of the n stored inputs. It waits until the consumers know all of them, because the
// server updates consumers shortly after it has confirmed a message.
func (s *server) inputs(ctx context.Context, n int) (map[string]int, error) {
	consumers, err := s.consumers(ctx)
	for err == nil {
		inputs, all := map[string]int{}, 0
		for _, c := range consumers {
			info, err := c.Info(ctx)
			if err != nil {
				return nil, fmt.Errorf("count a consumer's inputs: %w", err)
			}
			inputs[info.Name] = int(info.NumPending)
			all += inputs[info.Name]
		}
		if all == n {
			return inputs, nil
		}
		err = pause(ctx, pollLast)
	}
	return nil, err
}

// unpin recreates each consumer without pinning it to a client.
func (s *server) unpin(ctx context.Context) error {
	consumers, err := s.consumers(ctx)
	if err != nil {
		return err
	}
	for _, c := range consumers {
		config := c.CachedInfo().Config
		if err := s.js.DeleteConsumer(ctx, s.in, config.Durable); err != nil {
			return fmt.Errorf("delete consumer %s: %w", config.Durable, err)
		}
		config.Durable += "-unpinned"
		config.Name = config.Durable
		config.PriorityPolicy, config.PriorityGroups, config.PinnedTTL = jetstream.PriorityPolicyNone, nil, 0
		if _, err := s.js.CreateConsumer(ctx, s.in, config); err != nil {
			return fmt.Errorf("create consumer %s: %w", config.Durable, err)
		}
	}
	return nil
}
