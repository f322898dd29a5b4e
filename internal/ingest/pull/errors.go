package pull

import "errors"

// What ends a pull, beside the errors of the context and of the connection (nats.ErrConnectionClosed).
var (
	// ErrSilent says that the server has said nothing for more than two heartbeats, though it was asked to.
	ErrSilent = errors.New("the server has gone silent: no heartbeat of the pull")

	// ErrEnded says that the pull was drained or stopped, and that nothing of it is left.
	ErrEnded = errors.New("the pull has ended")

	// ErrGone says that the consumer was deleted.
	ErrGone = errors.New("the consumer was deleted")

	// ErrIdle says that no message has come for Request.Idle. The pull goes on.
	ErrIdle = errors.New("no message has come for a while")
)
