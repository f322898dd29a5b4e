package partitioned

import (
	"context"
	"errors"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// modelPull simulates a pull. It includes its requests at the server, the connection to the client, and the messages
// that the client has received.
type modelPull struct {
	w      *leaseWorker
	e      *modelLease
	in     chan *modelMessage
	broken chan error

	open        bool // whether the server has its requests
	leaving     bool // whether the client has ended the pull; the server may not have processed that
	request     string
	requestTurn uint64
	wire        []*modelMessage
	fresh       time.Time // time of the request without a pin

	turn   uint64 // turn that the client has seen
	pinned string
}

// cut drops the messages on the wire from the i-th on. It keeps the first one after a reset, as modelServer.reset
// explains.
func (p *modelPull) cut(i int) {
	kept := p.wire[:i]
	for _, msg := range p.wire[i:] {
		if msg.number == 1 {
			kept = append(kept, msg)
		}
	}
	p.wire = kept
}

// lost notifies the client that another client is pinned. The client then makes a request without a pin. The caller
// holds m.mu.
func (p *modelPull) lost() {
	p.request, p.pinned, p.fresh = "", "", time.Now()
}

func (p *modelPull) next(ctx context.Context) (inflight.Incoming, error) {
	idle := time.NewTimer(topology.PinnedFor)
	defer idle.Stop()
	var msg *modelMessage
	select {
	case msg = <-p.in:
	default:
		select {
		case msg = <-p.in:
		case err := <-p.broken:
			return nil, err
		case <-idle.C:
			return nil, pull.ErrIdle
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if msg.turn > p.turn {
		if err := p.learnPin(ctx, msg.turn); err != nil {
			return nil, err
		}
	}
	return msg, nil
}

// learnPin records the pin of a turn in p, under the same conditions as pull.Pull.
func (p *modelPull) learnPin(ctx context.Context, turn uint64) error {
	m := p.w.m
	return p.w.call(ctx, "pin", false, func() error {
		m.server.expirePin()
		if p.requestTurn != turn || time.Since(p.fresh) >= topology.PinnedFor || m.server.pin == "" {
			return errors.New("the pin is not known")
		}
		p.turn, p.pinned = turn, m.server.pin
		return nil
	})
}

func (p *modelPull) pin() string {
	p.w.m.mu.Lock()
	defer p.w.m.mu.Unlock()
	return p.pinned
}

func (p *modelPull) keep() error {
	m := p.w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.pinned != "" && p.pinned == m.server.pin && !p.w.dead && !m.isFrozen(p.w) {
		m.server.pinSeen = time.Now()
	}
	return nil
}

func (p *modelPull) leave(ctx context.Context, turn uint64) {
	for rest := true; rest; {
		select {
		case msg := <-p.in:
			if msg.turn > turn {
				_ = p.learnPin(ctx, msg.turn)
				rest = false
			}
		default:
			rest = false
		}
	}
	p.w.m.mu.Lock()
	p.leaving = true
	p.w.m.mu.Unlock()
}
