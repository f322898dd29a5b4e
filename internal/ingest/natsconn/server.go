package natsconn

import (
	"errors"
	"time"

	"millrace/internal/ingest/finding"
)

// Server says how to reach NATS. Its files are paths; empty means that there is none.
type Server struct {
	URL   string // server addresses, comma separated
	Creds string // a credentials file: JWT and seed of a user
	NKey  string // a file with a user's NKey seed
	CA    string // PEM, certificates of authorities
	Cert  string // PEM, the client's certificate
	Key   string // PEM, its private key

	TLSFirst bool // begin with TLS before the server sends anything
}

// Inspect checks the files that c names, without a server.
func (c Server) Inspect(now time.Time) (findings []finding.Finding) {
	for _, f := range c.inspectFiles(now) {
		found := finding.Finding{What: f.Variable, Found: f.Path + " " + f.Found, Advice: f.Advice}
		switch {
		case f.Wrong:
			found.Level = finding.Error
		case f.Advice != "":
			found.Level = finding.Warning
		}
		findings = append(findings, found)
	}
	return findings
}

// inspectFiles checks every file that c names, as of now.
func (c Server) inspectFiles(now time.Time) []*fileFinding {
	var all []*fileFinding
	if c.Creds != "" {
		all = append(all, credsFile(c.Creds).inspect(now))
	}
	if c.NKey != "" {
		all = append(all, seedFile(c.NKey).inspect())
	}
	if c.CA != "" {
		all = append(all, authorities(c.CA).inspect(now))
	}
	if c.Cert != "" {
		all = append(all, pair{c.Cert, c.Key}.inspect(now)...)
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
