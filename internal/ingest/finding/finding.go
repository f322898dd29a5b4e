// Package finding is how the worker says what it found of what it needs, when it starts and in `worker check`: each thing with
// how much it matters and what to do.
//
// Packages topology and natsconn make findings, and the command worker prints them. Start reading at Finding.
package finding

// Level says how much a finding matters.
type Level int

// The levels. The worker does not start with an Error.
const (
	OK Level = iota
	Warning
	Error
)

func (l Level) String() string { return [...]string{"ok", "warning", "error"}[l] }

// Finding is one thing that was looked at.
type Finding struct {
	Level  Level
	What   string // "stream INGEST"
	Found  string // what it is like
	Advice string // what to do; empty for OK

	Missing bool // it is not there, and provisioning would create it
}

func (f Finding) String() string {
	s := f.What + ": " + f.Found
	if f.Advice != "" {
		s += ": " + f.Advice
	}
	return s
}
