package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
	"golang.org/x/sync/errgroup"

	"millrace/internal/bench"
	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/textframes"
)

// plain is a worker in plain Go on the streams of exclusive delivery. For each partition, it pulls inputs in order and
// groups the waiting inputs. It computes a group's results on all cores and stores them in one fast batch with one
// confirmation. Then it acknowledges the group with one message. Without operators, it computes nothing, and its rate
// is approximately the server's maximum.
type plain struct {
	ops           []operator.Operator // nil if the worker computes nothing
	connections   int                 // number of connections, used for inputs and results as in Millrace
	groupMessages int                 // maximum number of messages in a group
	groupBytes    int                 // size in bytes at which a group is full

	conns   []*nats.Conn
	results jetstream.JetStream // publisher on the first connection
	pair    *pair
	content *content
	null    result    // result of each message if the worker computes nothing
	calc    sync.Pool // pool of *calculator

	moved  atomic.Int64 // number of acknowledged inputs
	groups atomic.Int64
}

func (w *plain) prepare(ctx context.Context, of pairs, l load) (err error) {
	p := of[0]
	if err := p.acceptsBatches(ctx); err != nil {
		return err
	}
	if w.conns, err = p.dial("millrace-bench-plain", w.connections); err != nil {
		return err
	}
	if w.null, err = l.nullResult(); err != nil {
		return err
	}
	w.pair, w.content = p, l.content
	w.calc.New = func() any { return newCalculator(l.content, w.ops) }
	w.results, err = p.api.New(w.conns[0])
	return err
}

// acceptsBatches returns an error if the result stream doesn't accept fast batches.
func (p *pair) acceptsBatches(ctx context.Context) error {
	stream, err := p.js.Stream(ctx, outStream+p.name)
	if err != nil {
		return err
	}
	if !stream.CachedInfo().Config.AllowBatchPublish {
		return bench.Unable("the server can't store batches: use version 2.14 or later")
	}
	return nil
}

// errMoved ends run without an error when every input is acknowledged.
var errMoved = errors.New("every input is moved")

func (w *plain) run(ctx context.Context, l load) error {
	g, working := errgroup.WithContext(ctx)
	for i, consumer := range w.pair.topology().Consumers() {
		// The first connection is for results, and partitions share the others for inputs. A single connection is for both.
		nc := w.conns[min(1+i%max(w.connections-1, 1), w.connections-1)]
		inputs := make(chan *pull.Message, min(max(w.groupBytes/l.bytes(), 1), w.groupMessages))
		g.Go(func() error { return w.receive(working, nc, consumer, inputs) })
		g.Go(func() error { return w.settle(working, inputs, l.n) })
	}
	if err := g.Wait(); !errors.Is(err, errMoved) {
		return err
	}
	return flush(ctx, w.conns)
}

// These are the bounds, expiry and heartbeat of a pull request, as in the worker.
const (
	pullMessages = 4096
	pullFor      = 3 * time.Second
	heartbeat    = time.Second
)

// pullBytes returns the maximum size of a pull request over nc in bytes. The largest message must fit, with its subject
// and reply subject.
func pullBytes(nc *nats.Conn) int { return max(2<<20, int(nc.MaxPayload())+64<<10) }

// receive pulls inputs from a consumer until ctx is done.
func (w *plain) receive(ctx context.Context, nc *nats.Conn, consumer string, inputs chan<- *pull.Message) error {
	messages, err := pull.Open(nc, pull.Request{
		API: w.pair.api, Stream: inStream + w.pair.name, Consumer: consumer, Group: topology.PriorityGroup,
		Messages: pullMessages, Bytes: pullBytes(nc), Expires: pullFor, Heartbeat: heartbeat,
	})
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(ctx)
		if err != nil {
			return err
		}
		select {
		case inputs <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle processes one group of inputs after another. It returns errMoved when all n inputs of the round are
// acknowledged.
func (w *plain) settle(ctx context.Context, inputs <-chan *pull.Message, n int) error {
	for {
		group, err := w.gather(ctx, inputs)
		if err != nil {
			return err
		}
		answers, err := w.compute(group)
		if err != nil {
			return err
		}
		if err := w.store(ctx, answers); err != nil {
			return fmt.Errorf("store a batch of results: %w", err)
		}
		if err := group[len(group)-1].Ack(); err != nil {
			return fmt.Errorf("acknowledge inputs: %w", err)
		}
		w.groups.Add(1)
		if w.moved.Add(int64(len(group))) == int64(n) {
			return errMoved
		}
	}
}

// gather waits for an input. It returns this input and the inputs already in the channel, within the bounds of a group.
func (w *plain) gather(ctx context.Context, inputs <-chan *pull.Message) (group []*pull.Message, err error) {
	select {
	case m := <-inputs:
		group = append(group, m)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for bytes := len(group[0].Data()); len(group) < w.groupMessages && bytes < w.groupBytes; {
		select {
		case m := <-inputs:
			group, bytes = append(group, m), bytes+len(m.Data())
		default:
			return group, nil
		}
	}
	return group, nil
}

// compute returns the results of a group. With operators it uses all cores.
func (w *plain) compute(group []*pull.Message) ([]*nats.Msg, error) {
	answers, part := make([]*nats.Msg, len(group)), len(group)
	if w.ops != nil {
		part = (len(group)-1)/runtime.GOMAXPROCS(0) + 1
	}
	var g errgroup.Group
	for from := 0; from < len(group); from += part {
		g.Go(func() (err error) {
			c := w.calc.Get().(*calculator)
			defer w.calc.Put(c)
			for i := from; i < min(from+part, len(group)) && err == nil; i++ {
				out := w.null
				if w.ops != nil {
					out, err = c.result(group[i].Data())
				}
				if err == nil {
					answers[i], err = w.answer(group[i], out)
				}
			}
			return err
		})
	}
	return answers, g.Wait()
}

// answer returns the message that Millrace would store for an input whose result is out, with the same subject, headers and ID.
func (w *plain) answer(in *pull.Message, out result) (*nats.Msg, error) {
	meta, err := in.Metadata()
	if err != nil {
		return nil, err
	}
	operators := "none"
	if w.ops != nil {
		operators = bench.Specs(w.ops)
	}
	from := published(in.Subject())
	m := &nats.Msg{Subject: mapped(from), Data: out.body, Header: nats.Header{
		results.HeaderStream:    {meta.Stream},
		results.HeaderSequence:  {strconv.FormatUint(meta.Sequence.Stream, 10)},
		results.HeaderSubject:   {from},
		results.HeaderOperators: {operators},
		jetstream.MsgIDHeader:   {w.pair.messageID(meta.Sequence.Stream) + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)},
	}}
	maps.Copy(m.Header, out.header)
	return m, nil
}

// flow sets the number of messages between two acknowledgements of the server, and the maximum number of outstanding
// acknowledgements.
var flow = jetstreamext.FastPublishFlowControl{Flow: 500, MaxOutstandingAcks: 3, AckTimeout: answerTimeout}

func (w *plain) store(ctx context.Context, answers []*nats.Msg) error {
	batch, err := jetstreamext.NewFastPublisher(w.results, flow)
	if err != nil {
		return err
	}
	last := len(answers) - 1
	for _, m := range answers[:last] {
		if _, err := batch.AddMsg(m); err != nil {
			return err
		}
	}
	_, err = batch.CommitMsg(ctx, answers[last])
	return err
}

func (w *plain) close() error {
	closeAll(w.conns)
	return nil
}

func (w *plain) batches() int64 { return w.groups.Load() }

// calculator computes results with the operators' references. Only one goroutine may use it at a time.
type calculator struct {
	content  *content
	messages memory.Messages
	header   nats.Header // header of the results of messages with one record
	values   [][]byte    // values of one record, by operator
	unpack   compression.Decompressor
	frame    frame.Frame
}

func newCalculator(c *content, ops []operator.Operator) *calculator {
	return &calculator{content: c, messages: c.messages(ops), header: c.header(1, 0), values: make([][]byte, len(ops))}
}

func (c *calculator) result(body []byte) (r result, err error) {
	if c.content.framing == frame.None {
		for i, op := range c.messages.Operators {
			c.values[i] = op.AppendReference(c.values[i][:0], body)
		}
		return result{c.header, operator.JSON.Append(nil, c.messages.Operators, len(body), c.values)}, nil
	}
	if c.messages.Decompress != compression.None {
		if body, err = c.unpack.Append(nil, c.messages.Decompress, body, frame.DefaultMaxBytes); err != nil {
			return r, err
		}
	}
	if err := c.messages.Split.Open(&c.frame, "", body); err != nil {
		return r, err
	}
	records := make([][]byte, c.frame.Records())
	for i := range records {
		records[i] = c.frame.Record(i)
	}
	want, leftOut, err := textframes.Results(&c.messages, body, records, nil)
	if err != nil {
		return r, err
	}
	return c.content.newResult(want, leftOut), nil
}
