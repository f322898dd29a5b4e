package pull

import "time"

// ticksPerBeat is how often silence is measured per heartbeat.
const ticksPerBeat = 2

// silence measures how long the server has sent nothing, and how long it has sent no message.
type silence struct {
	mute  int // ticks without anything from the server
	quiet int // ticks without a message
}

// tick counts one tick. renew reports whether the requests must be repeated. tick fails with ErrSilent or ErrIdle.
func (s *silence) tick(r Request, connected bool) (renew bool, err error) {
	if !connected {
		s.mute = 0 // without a connection silence is expected, and a reconnect is signalled
	}
	s.mute++
	s.quiet++
	switch tick := r.Heartbeat / ticksPerBeat; {
	case s.mute > 2*ticksPerBeat:
		return false, ErrSilent
	case s.mute > ticksPerBeat:
		return true, nil // the requests may no longer be pending at the server
	case r.Idle > 0 && time.Duration(s.quiet)*tick >= r.Idle:
		s.quiet = 0
		return false, ErrIdle
	}
	return false, nil
}
