package pull

import "time"

// ticksPerBeat is the number of ticks per heartbeat interval.
const ticksPerBeat = 2

// silence measures the time since the server last sent anything, and since it last sent a message.
type silence struct {
	mute  int // number of ticks without a message or status message
	quiet int // number of ticks without a message
}

// tick counts one tick of a pull with r. renew reports whether the requests must be sent again. tick fails with ErrSilent or
// ErrIdle.
func (s *silence) tick(r Request, connected bool) (renew bool, err error) {
	if !connected {
		s.mute = 0 // silence is normal without a connection
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
