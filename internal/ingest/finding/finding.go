// Package finding has the type in which the worker reports the state of what it needs, at startup and in `worker
// check`: each item with its severity and what to do. Packages topology and natsconn produce findings.
//
// Packages topology and natsconn make findings, and the command worker prints them. Start reading at Finding.
package finding

// Level is the severity of a finding.
type Level int

// The levels. The worker doesn't start if there is an Error.
const (
	OK Level = iota
	Warning
	Error
)

func (l Level) String() string { return [...]string{"ok", "warning", "error"}[l] }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is the result of one check. `worker check --json` prints it.
type Finding struct {
	Level  Level  `json:"level"`
	What   string `json:"what"`             // "stream INGEST"
	Found  string `json:"found"`            // its state
	Advice string `json:"advice,omitempty"` // what to do; empty for OK

	Missing    bool `json:"-"` // it doesn't exist, and provisioning would create it
	Unanswered bool `json:"-"` // the server can't answer now, for example because it has no leader yet; a later check may find no error
}

func (f Finding) String() string {
	s := f.What + ": " + f.Found
	if f.Advice != "" {
		s += ": " + f.Advice
	}
	return s
}
