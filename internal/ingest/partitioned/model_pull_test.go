package partitioned

import (
	"context"
	"errors"
	"time"

	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/pull"
	"millrace/internal/ingest/topology"
)

// modelPull simulates a pull: its requests at the server, the connection to the client, and the messages that the client has
// received.
type modelPull struct {
	w      *leaseWorker
	e      *modelLease
	in     chan *modelMessage
	broken chan error

	open        bool // the server has its requests
	leaving     bool // the client has ended the pull, but the server may not know
	request     string
	requestTurn uint64
	wire        []*modelMessage
	fresh       time.Time // when the request without a pin was made

	turn   uint64 // turn as the client knows it
	pinned string
}

// cut drops the messages on the wire from the i-th on, but not the first one after a reset: see modelServer.reset.
func (p *modelPull) cut(i int) {
	kept := p.wire[:i]
	for _, msg := range p.wire[i:] {
		if msg.number == 1 {
			kept = append(kept, msg)
		}
	}
	p.wire = kept
}

// lost tells the client that another client is pinned. The client then makes a request without a pin. m.mu is held.
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

// learnPin learns the pin of a turn in the same way as pull.Pull.
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
