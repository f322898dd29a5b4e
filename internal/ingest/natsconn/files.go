package natsconn

import (
	"errors"
	"time"
)

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

// inspectFiles looks at every file that is named, as of now.
func (c Server) inspectFiles(now time.Time) []*fileFinding {
	var all []*fileFinding
	if c.Creds != "" {
		all = append(all, inspectCreds(c.Creds, now))
	}
	if c.NKey != "" {
		all = append(all, inspectNKey(c.NKey))
	}
	if c.CA != "" {
		all = append(all, inspectAuthorities(c.CA, now))
	}
	if c.Cert != "" {
		all = append(all, inspectPair(c.Cert, c.Key, now)...)
	}
	return all
}

// wrong is everything that keeps a connection from coming about, as one error; nil if there is nothing.
func (c Server) wrong(now time.Time) error {
	var errs []error
	for _, finding := range c.inspectFiles(now) {
		if finding.Wrong {
			errs = append(errs, finding)
		}
	}
	return errors.Join(errs...)
}
