package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"millrace/internal/device"
	"millrace/internal/ingest/results"
	"millrace/internal/ingest/retry"
	"millrace/internal/ingest/statelog"
	"millrace/internal/ingest/store"
	"millrace/internal/streams"
)

// states has this worker's replicas of the partitions' states: one for each partition that it owns, and with Standby, some of others.
type states struct {
	*StateOptions
	o     *Options
	pipes []*streams.Pipeline // that of partition p is pipes[p%len(pipes)]
	spec  string              // identifies the states; see store.State
	most  int                 // maximum number of replicas
	log   *slog.Logger

	reading       sync.Mutex // guards replica.last, and the figures of closed states
	decided, hits uint64

	// The model test simulates these functions.
	newState   func(p int) (device.State, error)                                     // an empty one for a partition
	source     func(p int) statelog.Source                                           // log of a partition's state
	lastMarker func(ctx context.Context, p int) (last store.StoredMarker, err error) // of a partition

	mu      sync.Mutex
	copies  map[int]*replica // by partition
	freed   chan struct{}    // closed when a lease gives a replica back
	waiting int              // partitions for which reserve waits
}

// replica is a partition's replica. Either a lease holds it, or the goroutine that follows the logs updates it.
type replica struct {
	held bool              // whether a lease holds it, or is about to; guarded by states.mu
	last device.StateStats // figures at the last reading; guarded by states.reading
	log  int64             // size of the log then; guarded by states.reading

	using             chan struct{}    // has a token while follow uses it, or a lease that restores the state
	*statelog.Replica                  // nil if it has no memory yet
	commits           *results.Commits // of the last lease on this worker; nil if the state has only what is stored
}

func newReplica(held bool) *replica { return &replica{held: held, using: make(chan struct{}, 1)} }

// lock waits until nobody else uses the replica. tryLock doesn't wait, and reports whether nobody does.
func (r *replica) lock(ctx context.Context) error {
	select {
	case r.using <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *replica) tryLock() bool {
	select {
	case r.using <- struct{}{}:
		return true
	default:
		return false
	}
}

func (r *replica) unlock() { <-r.using }

// newStates returns nil without a stateful operator. It returns an error if the memory doesn't suffice for one partition.
func newStates(o *Options) (*states, error) {
	if o.State == nil {
		return nil, nil
	}
	s := &states{
		StateOptions: o.State, o: o, pipes: o.Pipes, log: o.Log, copies: map[int]*replica{}, freed: make(chan struct{}),
		spec: stateSpec(o.State.Operator, o.State.Records, o.Topology.Partitions),
		lastMarker: func(ctx context.Context, p int) (store.StoredMarker, error) {
			return results.LastMarker(ctx, o.Results, p)
		},
	}
	s.newState = func(p int) (device.State, error) { return s.pipes[p%len(s.pipes)].NewState(s.Operator, s.Records) }
	s.source = func(p int) statelog.Source { return s.logOf(p) }
	var largest int64
	for _, p := range o.Pipes {
		needs, err := p.StateBytes(s.Operator, s.Records)
		if err != nil {
			return nil, err
		}
		largest = max(largest, needs.Device)
	}
	if s.most = int(min(s.Bytes/largest, int64(o.Topology.Partitions))); s.most < 1 {
		return nil, fmt.Errorf("the state of %s for one partition has %d bytes, and MILLRACE_STATE_BYTES is %d: raise it, or lower MILLRACE_STATE_RECORDS", s.spec, largest, s.Bytes)
	}
	if fit := s.most * len(o.Pipes); fit < o.Topology.Partitions {
		s.log.Warn("not all partitions' states fit into this worker: without more workers, some partitions wait", "fit", fit, "partitions", o.Topology.Partitions,
			"advice", "raise MILLRACE_STATE_BYTES, lower MILLRACE_STATE_RECORDS, or run more workers")
	}
	return s, nil
}

// checkSpec returns a *statelog.LostError if this deployment's last state depends on other settings than this
// worker's states, for example on another number of partitions. restore detects this only in a partition that had a
// state, but a subject may have moved to a partition that had none. With Begin, checkSpec only warns. It asks again
// until the server answers or ctx ends.
func (s *states) checkSpec(ctx context.Context) error {
	if s == nil {
		return nil
	}
	for attempt := 1; ; attempt++ {
		err := compareSpec(ctx, s.o.JS, s.o.Topology, s.spec)
		switch isLost := errors.As(err, new(*statelog.LostError)); {
		case isLost && s.Begin:
			s.log.Warn(stateLost, "error", err)
			return nil
		case isLost || err == nil:
			return err
		}
		s.log.Warn("can't compare this worker's settings with those of the partitions' states; trying again", "error", err)
		if !retry.Sleep(ctx, retry.Delay(attempt)) {
			return ctx.Err()
		}
	}
}

// reserve waits until there is memory for the state of partition p, and keeps it until free. It returns false if ctx ends first.
func (s *states) reserve(ctx context.Context, p int) bool {
	if s == nil {
		return true
	}
	for waits := false; ; {
		s.mu.Lock()
		ok, freed := s.hold(p), s.freed
		if !ok && !waits {
			s.waiting++
			defer s.endWait()
		}
		s.mu.Unlock()
		if ok {
			return true
		}
		if !waits {
			s.log.Warn("a partition waits, because its state has no room in this worker", "partition", p)
		}
		waits = true
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (s *states) endWait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting--
}

// hold marks the replica of partition p as held. If there are too many replicas, it closes one that no lease holds. The caller holds s.mu.
func (s *states) hold(p int) bool {
	if r := s.copies[p]; r != nil {
		r.held = true
		return true
	}
	if !s.hasRoom(p) && !s.evict(p) {
		return false
	}
	s.copies[p] = newReplica(true)
	return true
}

// hasRoom reports whether there is memory for one more replica on the device of partition p. The caller holds s.mu.
func (s *states) hasRoom(p int) bool {
	n := 0
	for other := range s.copies {
		if s.shareDevice(p, other) {
			n++
		}
	}
	return n < s.most
}

func (s *states) shareDevice(p, q int) bool { return p%len(s.pipes) == q%len(s.pipes) }

// evict closes a replica on the device of partition p that no lease holds. The caller holds s.mu.
func (s *states) evict(p int) bool {
	for other, r := range s.copies {
		if s.shareDevice(p, other) && !r.held && r.tryLock() {
			s.close(r)
			r.unlock()
			delete(s.copies, other)
			return true
		}
	}
	return false
}

func (s *states) close(r *replica) {
	if r.Replica == nil {
		return
	}
	s.reading.Lock()
	stats := r.State().Stats()
	s.decided, s.hits, r.last = s.decided+stats.Decided, s.hits+stats.Hits, device.StateStats{}
	s.reading.Unlock()
	if err := r.State().Close(); err != nil {
		s.log.Warn("could not free the state of a partition", "error", err)
	}
	r.Replica = nil
}

// free ends the reservation of partition p. The replica stays for the next lease, or until its memory is needed.
func (s *states) free(p int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copies[p].held = false
	close(s.freed)
	s.freed = make(chan struct{})
}

// figures returns the figures of the states. Any goroutine may call it.
func (s *states) figures() (f StateFigures) {
	if s == nil {
		return f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading.Lock()
	defer s.reading.Unlock()
	f.Waiting, f.Decided, f.Hits = s.waiting, s.decided, s.hits
	for _, r := range s.copies {
		if r.tryLock() { // if it is locked, the last figures are used
			if r.Replica != nil {
				r.last, r.log = r.State().Stats(), r.LogBytes()
			}
			r.unlock()
		}
		f.Decided, f.Hits = f.Decided+r.last.Decided, f.Hits+r.last.Hits
		if r.held && r.last.Bytes > 0 {
			f.Owned, f.LogBytes = append(f.Owned, r.last), f.LogBytes+r.log
		}
	}
	return f
}

// closeAll frees all memory, at the end of the worker.
func (s *states) closeAll() {
	if s == nil {
		return
	}
	for _, r := range s.copies {
		s.close(r)
	}
}

// restore gives a lease on partition p its state. c are the lease's commits, or nil if the result stream takes none.
func (s *states) restore(ctx context.Context, of results.Partition, c *results.Commits) error {
	p := of.Number
	if c == nil {
		return fmt.Errorf("%s needs commit markers, and the result stream takes none: run worker check", s.Operator)
	}
	s.mu.Lock()
	r := s.copies[p]
	s.mu.Unlock()
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	start := time.Now()
	var err error
	if at, _ := c.Found(); of.IsBeyond(ctx, c) {
		err = &statelog.LostError{Cause: fmt.Errorf(
			"inputs up to %d are acknowledged, and the last state is that of input %d: the result stream has lost its last messages", of.Floor, at.Sequence)}
	}
	if err == nil && r.Replica != nil {
		if r.commits == nil || r.commits.Undecide() {
			if err := s.tryRestore(ctx, p, r, c, false); !isUnusable(err) {
				return err
			}
		}
		s.close(r) // it may have decisions that aren't stored
	}
	if err == nil {
		err = s.tryRestore(ctx, p, r, c, false)
	}
	if lost := (*statelog.LostError)(nil); errors.As(err, &lost) && s.Begin {
		s.log.Warn(stateLost, "partition", p, "error", err)
		s.close(r)
		err = s.tryRestore(ctx, p, r, c, true)
	}
	if err != nil {
		if isUnusable(err) {
			s.close(r)
		}
		return fmt.Errorf("restore the state of partition %d: %w", p, err)
	}
	records, _ := r.State().Applied()
	if records == 0 && of.Floor > 0 {
		s.log.Warn("the state of a partition begins empty, and doesn't know the inputs before: the operator is new here, or was off, or the result stream was "+
			"purged or recreated", "partition", p, "acknowledged", of.Floor)
	}
	s.log.Info("has the state of the partition", "partition", p, "records", records, "after", time.Since(start).Round(time.Millisecond).String())
	return nil
}

// tryRestore makes a replica the state of c. It opens the replica first if necessary.
func (s *states) tryRestore(ctx context.Context, p int, r *replica, c *results.Commits, begin bool) error {
	if err := s.open(p, r); err != nil {
		return err
	}
	r.commits = nil
	err := c.Restore(ctx, r.Replica, min(s.pipes[p%len(s.pipes)].BatchPayloads(), s.Records), begin)
	if err == nil {
		r.commits = c
	}
	return err
}

// open creates the state of a replica that has none.
func (s *states) open(p int, r *replica) error {
	if r.Replica != nil {
		return nil
	}
	state, err := s.newState(p)
	if errors.Is(err, device.ErrOutOfMemory) {
		return fmt.Errorf("%w: lower MILLRACE_STATE_BYTES or MILLRACE_STATE_RECORDS, or free memory", err)
	}
	if err != nil {
		return err
	}
	r.Replica, r.commits = statelog.NewReplica(state, s.spec, s.source(p)), nil
	return nil
}

// followEvery is the interval at which a worker trims the logs of its partitions, and reads those of others.
const followEvery = time.Second

// follow reads the logs of partitions that this worker doesn't own, as far as there is memory, until ctx is done. When the worker takes such a
// partition over, little is left to read. Without Standby, follow does nothing.
func (s *states) follow(ctx context.Context) {
	if s == nil {
		return
	}
	for retry.Sleep(ctx, followEvery) {
		for p := range s.o.Topology.Partitions {
			r := s.standby(p)
			if r == nil {
				continue
			}
			err := s.catchUp(ctx, p, r)
			if err != nil && ctx.Err() == nil {
				s.log.Debug("could not follow the state of a partition", "partition", p, "error", err)
				if isUnusable(err) {
					s.close(r)
				}
			}
			r.unlock()
		}
	}
}

// keepTrimmed trims the logs of partitions that this worker owns, until ctx is done. It holds nobody up, because a server doesn't answer a
// request for which the worker has no permission.
func (s *states) keepTrimmed(ctx context.Context) {
	if s == nil {
		return
	}
	for retry.Sleep(ctx, followEvery) {
		for p := range s.o.Topology.Partitions {
			if log := s.owned(p); log != nil {
				s.trim(ctx, p, log)
			}
		}
	}
}

// owned returns the replica of a partition that this worker owns, or nil. A lease that restores it may be using it.
func (s *states) owned(p int) *statelog.Replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.copies[p]
	if r == nil || !r.held || !r.tryLock() {
		return nil
	}
	defer r.unlock()
	return r.Replica
}

// trim removes what is no longer needed from the log of a partition.
func (s *states) trim(ctx context.Context, p int, log *statelog.Replica) {
	if err := log.Trim(ctx); err != nil && ctx.Err() == nil {
		s.o.Observer.StateTrimFailed()
		s.log.Warn("the log of a partition's state grows: allow the worker to purge the result stream", "partition", p, "error", err)
	}
}

// standby returns the replica of a partition that no lease holds, locked. It returns nil if there is none and no memory for one.
func (s *states) standby(p int) *replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Standby {
		return nil
	}
	r := s.copies[p]
	if r == nil && s.hasRoom(p) {
		r = newReplica(false)
		s.copies[p] = r
	}
	if r == nil || r.held || !r.tryLock() {
		return nil
	}
	return r
}

// catchUp brings a replica to the last marker of its partition. If the marker has no state, or one with other
// settings, it does nothing.
func (s *states) catchUp(ctx context.Context, p int, r *replica) error {
	last, err := s.lastMarker(ctx, p)
	if err != nil || last.State == nil || last.State.Spec != s.spec {
		return err
	}
	if err := s.open(p, r); err != nil {
		return err
	}
	if r.commits != nil && !r.commits.Undecide() {
		return errUndecided
	}
	r.commits = nil
	return r.CatchUp(ctx, last.At, last.State)
}

// errUndecided means that a replica has decisions that are not stored and that it can't undo.
var errUndecided = errors.New("the state has decisions that are not stored")

// isUnusable reports whether a replica can't continue after err. After other errors, for example of the connection, it reads on from its position.
func isUnusable(err error) bool {
	return errors.As(err, new(*statelog.LostError)) || errors.Is(err, errUndecided) || errors.As(err, new(*device.Error))
}
