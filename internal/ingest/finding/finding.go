// Package finding defines the result of a check of the server, the streams, the consumers or the worker's files.
// The worker runs these checks at startup and in `worker check`.
//
// The worker command and the packages topology and natsconn create findings. The command prints them. Start reading at Finding.
package finding

// Level is the severity of a finding.
type Level int

// The levels. The worker doesn't start while a finding is an Error, unless Missing is set and the worker provisions.
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
	Found  string `json:"found"`            // the state of the item in What
	Advice string `json:"advice,omitempty"` // advice for the user; empty for OK

	Missing bool `json:"-"` // the item doesn't exist, and provisioning would create it
	// Unanswered means that the server can't answer now, for example because it has no leader yet. A later check
	// may find no error.
	Unanswered bool `json:"-"`
}

func (f Finding) String() string {
	s := f.What + ": " + f.Found
	if f.Advice != "" {
		s += ": " + f.Advice
	}
	return s
}
