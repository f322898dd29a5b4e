package broker

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// batched is a worker that computes nothing and stores the results of a group of inputs in one batch, with one
// confirmation for the batch. It has two shapes. Shared: it acknowledges each input separately and stores several
// groups at once. Partitioned: each partition has its own consumer, stores one group after the other, and acknowledges
// a group at once.
type batched struct {
	client
	partitioned bool
	connections int // inputs and results are distributed over them as in the worker
	bounds      bounds
	inputs      map[string]int // number of inputs by consumer
	settled     atomic.Int64   // groups
}

// bounds are the bounds of a worker's batch.
type bounds struct{ payloads, bytes int }

// publishers is the number of groups that a shared worker stores at once. It equals the number of partitions, so that
// the two shapes don't differ in this.
const publishers = partitions

func (w *batched) ready(ctx context.Context, s *server, l load) (err error) {
	if err := s.acceptsBatches(ctx); err != nil {
		return err
	}
	if w.inputs, err = s.inputs(ctx, l.n); err != nil {
		return err
	}
	return w.dial(s, "null-batch", w.connections, sendWindow)
}

func (w *batched) run(ctx context.Context, l load) error {
	g := newErrGroup(ctx)
	publishers := publishers
	if w.partitioned {
		publishers = 1
	}
	i := 0
	for name, n := range w.inputs {
		w.serve(g, i, name, n, publishers, l.null())
		i++
	}
	if err := g.wait(); err != nil {
		return err
	}
	return w.flush(ctx)
}

// serve moves the n inputs of the i-th consumer with a pull, a goroutine that forms groups, and publishers.
func (w *batched) serve(g *errGroup, i int, name string, n, publishers int, null nullResult) {
	inputs := make(chan received, inputBuffer)
	groups := make(chan []jetstream.Msg)
	g.start(func(ctx context.Context) error {
		return w.receiveInto(ctx, w.conns[w.connection(i, true)], name, n, inputs)
	})
	g.start(func(ctx context.Context) error { return w.gather(ctx, inputs, groups) })
	for p := range publishers {
		g.start(func(ctx context.Context) error {
			for group := range groups {
				if err := w.settle(ctx, w.js[w.connection(p, false)], group, null); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// connection returns the connection for the inputs of a consumer, or for the results of one of its publishers. One of
// the two uses the first connection, and the other uses the remaining connections in rotation, unless there is only
// one.
func (w *batched) connection(i int, inputs bool) int {
	if inputs != w.partitioned || w.connections == 1 {
		return 0
	}
	return 1 + i%(w.connections-1)
}

// gather forms groups of inputs. If no input is waiting and a publisher is idle, it hands over a group that is not
// full, as the worker does with a batch and an idle lane.
func (w *batched) gather(ctx context.Context, inputs <-chan received, groups chan<- []jetstream.Msg) error {
	defer close(groups)
	var group []jetstream.Msg
	bytes := 0
	for inputs != nil || len(group) > 0 {
		take, give := inputs, groups
		if len(group) == 0 || len(inputs) > 0 {
			give = nil
		}
		if len(group) >= w.bounds.payloads || bytes >= w.bounds.bytes {
			take, give = nil, groups
		}
		select {
		case m, more := <-take:
			if !more {
				inputs = nil
				continue
			}
			group, bytes = append(group, m.Msg), bytes+len(m.Data())
		case give <- group:
			group, bytes = nil, 0
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// settle stores the results of a group and acknowledges its inputs.
func (w *batched) settle(ctx context.Context, js jetstream.JetStream, group []jetstream.Msg, null nullResult) error {
	if err := w.store(ctx, js, group, null); err != nil {
		return fmt.Errorf("store a batch of results: %w", err)
	}
	w.settled.Add(1)
	if w.partitioned {
		return group[len(group)-1].Ack()
	}
	for _, in := range group {
		if err := in.Ack(); err != nil {
			return err
		}
	}
	return nil
}

// groups implements grouping.
func (w *batched) groups() int64 { return w.settled.Load() }

// flow sets the number of messages between two progress reports of the server, and the maximum number of outstanding
// reports.
var flow = jetstreamext.FastPublishFlowControl{Flow: 500, MaxOutstandingAcks: 3, AckTimeout: answerTimeout}

// store stores the results of a group in one batch.
func (w *batched) store(ctx context.Context, js jetstream.JetStream, group []jetstream.Msg, null nullResult) error {
	batch, err := jetstreamext.NewFastPublisher(js, flow)
	if err != nil {
		return err
	}
	for i, in := range group {
		m, err := null.message(in)
		if err != nil {
			return err
		}
		if i < len(group)-1 {
			_, err = batch.AddMsg(m)
		} else {
			_, err = batch.CommitMsg(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
