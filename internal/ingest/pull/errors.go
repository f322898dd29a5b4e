package pull

import "errors"

// Errors of Next and Fetch, in addition to the context's errors and nats.ErrConnectionClosed. The pull continues after ErrIdle.
var (
	// ErrSilent means that the server has sent nothing for more than two heartbeats, although a request is pending.
	ErrSilent = errors.New("the server is silent: no heartbeat for the pull")

	// ErrEnded means that the pull was drained or stopped, and that no messages are left.
	ErrEnded = errors.New("the pull has ended")

	// ErrGone means that the consumer was deleted.
	ErrGone = errors.New("the consumer was deleted")

	// ErrIdle means that no message has arrived for the duration Request.Idle.
	ErrIdle = errors.New("no message has come for a while")
)
