// Package lookup finds the inputs that already have a result or a dead letter. The result stream's duplicate window
// covers recent results. For older results, this package reads the headers of all messages that were stored since the
// first delivery of the inputs. It reads each message once, and keeps only the input that the message belongs to.
//
// Package results calls Find before it publishes a result that may already be stored. Package topology calls Check to
// verify that results can be read. Start reading at Results.Find. A scanner reads the streams into an index, and api
// queries the server.
package lookup

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Results looks up inputs. It is safe for concurrent use, and runs one call at a time.
type Results struct {
	*api

	mu      sync.Mutex
	scanner scanner
}

// New returns a Results that uses js. The caller keeps ownership of its connection.
func New(js jetstream.JetStream, o Options) *Results {
	a := &api{nc: js.Conn(), js: js, o: o}
	return &Results{api: a, scanner: scanner{api: a}}
}

// Found describes the stored messages of one input.
type Found struct {
	Done    bool     // whether its result, or the dead letter of the whole message, is stored
	Partial []string // ids of the stored parts of its result, and of dead letters of its records; nil if Done
}

// Find returns the stored messages of each input. A result that it doesn't find was not stored before began. Find reads
// the headers of all messages that were stored since the earliest first delivery of the inputs. It skips messages that
// an earlier call has read. It fails with ErrImpossible if results can't be read at all.
func (r *Results) Find(ctx context.Context, inputs []Wanted) (found []Found, began time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := make([]Input, len(inputs))
	for i, in := range inputs {
		keys[i] = in.Input
	}
	oldest := time.Unix(0, inputs[0].Stored)
	for _, in := range inputs {
		if at := time.Unix(0, in.Stored); at.Before(oldest) {
			oldest = at
		}
	}
	scan := &r.scanner
	if scan.since.IsZero() || oldest.Before(scan.since) && r.bound(ctx, inputs, oldest).Before(scan.since) {
		scan.restart(r.bound(ctx, inputs, oldest).Add(-slack))
	}
	began = time.Now()
	complete, err := scan.scan(ctx, keys)
	if err != nil {
		if !complete {
			scan.restart(time.Time{})
		}
		return nil, began, r.explain(err)
	}
	found = make([]Found, len(inputs))
	for i, in := range keys {
		if found[i].Done = scan.found.has(in); !found[i].Done {
			found[i].Partial = scan.found.unfinished.of(in)
		}
	}
	if !complete {
		scan.restart(time.Time{}) // the next inputs need entries that were dropped
	}
	return found, began, nil
}

// Check returns an error if results can't be read. The error is ErrImpossible if the account lacks a permission, or if
// the stream removes acknowledged messages. A stream that doesn't exist is not an error.
func (r *Results) Check(ctx context.Context) error {
	for _, name := range r.o.Streams {
		info, err := r.info(ctx, name)
		if err != nil {
			return r.explain(err)
		}
		if info == nil {
			continue
		}
		if err := keeps(info); err != nil {
			return err
		}
		if _, err := r.consumerFrom(ctx, name, info.State.LastSeq+1); err != nil {
			return r.explain(err)
		}
	}
	return nil
}
