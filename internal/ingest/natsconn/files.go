package natsconn

// The variables that name the files.
const (
	credsVariable = "MILLRACE_NATS_CREDS"
	nkeyVariable  = "MILLRACE_NATS_NKEY"
	caVariable    = "MILLRACE_NATS_TLS_CA"
	certVariable  = "MILLRACE_NATS_TLS_CERT"
	keyVariable   = "MILLRACE_NATS_TLS_KEY"
)

// fileFinding is what was found in one file. As an error it is a whole sentence.
type fileFinding struct {
	Variable string // that names the file
	Path     string
	Found    string // what it is, or what is wrong with it
	Advice   string // what to do; empty where nothing is wrong
	Wrong    bool   // with this file no connection comes about
}

// Error says what is wrong and what to do.
func (f *fileFinding) Error() string {
	return f.Variable + ": " + f.Path + " " + f.Found + ": " + f.Advice
}
