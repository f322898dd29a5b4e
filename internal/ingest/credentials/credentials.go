// Package credentials reads what a worker shows to a NATS server and what it checks the server by: a credentials
// file, an NKey seed, certificates. It finds out what is wrong with a file before a server does, and says in words
// why a worker and a server did not come together.
//
// Files are read again for every connection, so one that is replaced on disk counts from the next connection on. What
// they hold is in none of the texts that are made here.
package credentials

import (
	"errors"
	"time"
)

// The variables that name the files.
const (
	CredsVariable = "MILLRACE_NATS_CREDS"
	NKeyVariable  = "MILLRACE_NATS_NKEY"
	CAVariable    = "MILLRACE_NATS_TLS_CA"
	CertVariable  = "MILLRACE_NATS_TLS_CERT"
	KeyVariable   = "MILLRACE_NATS_TLS_KEY"
)

// Files are the paths of what there is; empty means none.
type Files struct {
	Creds string // a credentials file: JWT and seed of a user
	NKey  string // a file with a user's NKey seed
	CA    string // PEM, certificates of authorities
	Cert  string // PEM, the client's certificate
	Key   string // PEM, its private key
}

// Finding is what was found in one file. As an error it is a whole sentence.
type Finding struct {
	Variable string // that names the file
	Path     string
	Found    string // what it is, or what is wrong with it
	Advice   string // what to do; empty where nothing is wrong
	Wrong    bool   // with this file no connection comes about
}

// Error says what is wrong and what to do.
func (f *Finding) Error() string {
	return f.Variable + ": " + f.Path + " " + f.Found + ": " + f.Advice
}

// Inspect looks at every file that is named, as of now.
func (f Files) Inspect(now time.Time) []*Finding {
	var all []*Finding
	if f.Creds != "" {
		all = append(all, inspectCreds(f.Creds, now))
	}
	if f.NKey != "" {
		all = append(all, inspectNKey(f.NKey))
	}
	if f.CA != "" {
		all = append(all, inspectAuthorities(f.CA, now))
	}
	if f.Cert != "" {
		all = append(all, inspectPair(f.Cert, f.Key, now)...)
	}
	return all
}

// Wrong is everything that keeps a connection from coming about, as one error; nil if there is nothing.
func (f Files) Wrong(now time.Time) error {
	var errs []error
	for _, finding := range f.Inspect(now) {
		if finding.Wrong {
			errs = append(errs, finding)
		}
	}
	return errors.Join(errs...)
}
