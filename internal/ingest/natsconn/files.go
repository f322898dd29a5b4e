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

// inspectFiles checks every file that c names, as of now.
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

// wrong returns every problem that prevents a connection as one error; nil if there is none.
func (c Server) wrong(now time.Time) error {
	var errs []error
	for _, finding := range c.inspectFiles(now) {
		if finding.Wrong {
			errs = append(errs, finding)
		}
	}
	return errors.Join(errs...)
}
