package broker

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// batched is a worker that computes nothing and stores the results of a group of inputs in one batch, with one
// confirmation for all. It comes in two shapes: shared, where each input is acknowledged by itself and several groups
// are on their way at once; and partitioned, where every partition has a consumer of its own, its groups follow one
// another, and one acknowledgement stands for a group.
type batched struct {
	client
	partitioned bool
	links       int // connections, over which inputs and results are dealt out as the worker does
	bounds      bounds
	inputs      map[string]int // how many there are, by consumer
	settled     atomic.Int64   // groups
}

// bounds are those of a batch of the worker.
type bounds struct{ payloads, bytes int }

// publishers is how many groups a shared worker has on their way at once: as many as there are partitions, so that
// both shapes differ in nothing else.
const publishers = partitions

func (w *batched) ready(ctx context.Context, s *site, l load) (err error) {
	if err := s.takesBatches(ctx); err != nil {
		return err
	}
	if w.inputs, err = s.inputs(ctx, l.n); err != nil {
		return err
	}
	return w.dial(s, "null-batch", w.links, sendWindow)
}

func (w *batched) run(ctx context.Context, l load) error {
	c := newCrew(ctx)
	at := publishers
	if w.partitioned {
		at = 1
	}
	i := 0
	for name, n := range w.inputs {
		w.serve(c, i, name, n, at, l.size)
		i++
	}
	if err := c.wait(); err != nil {
		return err
	}
	return w.flush(ctx)
}

// serve moves the n inputs of the i-th consumer: a pull, a goroutine that makes groups, and publishers.
func (w *batched) serve(c *crew, i int, name string, n, publishers, size int) {
	inputs := make(chan received, handOver)
	groups := make(chan []jetstream.Msg)
	c.do(func(ctx context.Context) error { return w.receive(ctx, w.conns[w.forInputs(i)], name, n, inputs) })
	c.do(func(ctx context.Context) error { return w.gather(ctx, inputs, groups) })
	body := nullBody(size)
	for p := range publishers {
		c.do(func(ctx context.Context) error {
			for g := range groups {
				if err := w.settle(ctx, w.js[w.forResults(p)], g, body); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// forInputs is the connection over which the i-th consumer's inputs come.
func (w *batched) forInputs(i int) int {
	if w.partitioned {
		return w.behindFirst(i)
	}
	return 0
}

// forResults is the connection over which a consumer's p-th publisher stores results.
func (w *batched) forResults(p int) int {
	if w.partitioned {
		return 0
	}
	return w.behindFirst(p)
}

// behindFirst deals out all connections but the first, where there are any.
func (w *batched) behindFirst(i int) int {
	if w.links == 1 {
		return 0
	}
	return 1 + i%(w.links-1)
}

// gather makes groups of inputs. A group that is not full goes as soon as nothing is waiting and a publisher has
// nothing to do, as a batch of the worker goes to an idle lane.
func (w *batched) gather(ctx context.Context, inputs <-chan received, groups chan<- []jetstream.Msg) error {
	defer close(groups)
	var g []jetstream.Msg
	bytes := 0
	for {
		take, give := inputs, groups
		if len(g) == 0 || len(inputs) > 0 {
			give = nil
		}
		if len(g) >= w.bounds.payloads || bytes >= w.bounds.bytes {
			take, give = nil, groups
		}
		select {
		case m, more := <-take:
			if !more {
				return last(ctx, g, groups)
			}
			g, bytes = append(g, m.Msg), bytes+len(m.Data())
		case give <- g:
			g, bytes = nil, 0
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// last hands over what no more inputs come to.
func last(ctx context.Context, g []jetstream.Msg, groups chan<- []jetstream.Msg) error {
	if len(g) == 0 {
		return nil
	}
	select {
	case groups <- g:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle stores the results of a group and acknowledges its inputs.
func (w *batched) settle(ctx context.Context, js jetstream.JetStream, g []jetstream.Msg, body []byte) error {
	if err := w.store(ctx, js, g, body); err != nil {
		return fmt.Errorf("store a batch of results: %w", err)
	}
	w.settled.Add(1)
	if w.partitioned {
		return g[len(g)-1].Ack()
	}
	for _, in := range g {
		if err := in.Ack(); err != nil {
			return err
		}
	}
	return nil
}

// groups implements grouping.
func (w *batched) groups() int64 { return w.settled.Load() }

// flow is how many messages the server is asked to let pass before it says how far it is, and how often it may be
// behind with that.
var flow = jetstreamext.FastPublishFlowControl{Flow: 500, MaxOutstandingAcks: 3, AckTimeout: patience}

// store stores the results of a group in one batch.
func (w *batched) store(ctx context.Context, js jetstream.JetStream, g []jetstream.Msg, body []byte) error {
	batch, err := jetstreamext.NewFastPublisher(js, flow)
	if err != nil {
		return err
	}
	for i, in := range g {
		m, err := result(in, nullOperators, body)
		if err != nil {
			return err
		}
		if i < len(g)-1 {
			_, err = batch.AddMsg(m)
		} else {
			err = commit(ctx, batch, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func commit(ctx context.Context, batch jetstreamext.FastPublisher, m *nats.Msg) error {
	_, err := batch.CommitMsg(ctx, m)
	return err
}
