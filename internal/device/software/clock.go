package software

import "time"

// Clock decides when the operations of a device run, and what time it is. It runs the operations of each stream in
// order: it takes Stream.Head once that is not Op.Blocked, calls Op.Do, then Device.Finish, or Device.Lose if Do failed.
// It passes the token of each notification to Device.Complete. The device calls all methods but Stop with its lock held.
type Clock interface {
	// Now returns the time since the device's epoch.
	Now() time.Duration

	// Started is called for each new stream.
	Started(s *Stream)

	// Admit returns nil once s has room for another operation, or an error if it must not have one. It may release the
	// lock while it waits.
	Admit(s *Stream) error

	// Enqueued is called when o has become the last operation of its stream.
	Enqueued(o *Op)

	// Opened is called when the caller has opened a gate.
	Opened()

	// Polled is called when the caller asks whether an event was reached.
	Polled()

	// Step moves a virtual clock to the next instant at which an operation ends. It returns false if the caller has to
	// wait until another goroutine has changed the state. In real time that is always so.
	Step(w Waiter) bool

	// Lost is called when the device was lost. The queues of all streams are empty then.
	Lost()

	// Stop returns once no goroutine of the clock is left. All streams are closed then, and their operations are done.
	Stop()
}

// Waiter is the kind of a call that waits.
type Waiter uint8

// The waiters.
const (
	ForStream     Waiter = iota + 1 // Stream.Synchronize, and Close
	ForEvent                        // Event.Synchronize
	ForCompletion                   // Device.WaitCompletion
)
