package natsconn

// The variables that name the files.
const (
	credsVariable = "MILLRACE_NATS_CREDS"
	nkeyVariable  = "MILLRACE_NATS_NKEY"
	caVariable    = "MILLRACE_NATS_TLS_CA"
	certVariable  = "MILLRACE_NATS_TLS_CERT"
	keyVariable   = "MILLRACE_NATS_TLS_KEY"
)

// fileFinding describes the state of one file. As an error it is a whole sentence.
type fileFinding struct {
	Variable string // the variable that names the file
	Path     string
	Found    string // what the file is, or what is wrong with it
	Advice   string // what to do; empty if nothing is wrong
	Wrong    bool   // no connection can succeed with this file
}

// Error returns the problem and what to do.
func (f *fileFinding) Error() string {
	return f.Variable + ": " + f.Path + " " + f.Found + ": " + f.Advice
}
