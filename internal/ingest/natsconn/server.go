package natsconn

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"millrace/internal/ingest/finding"
)

// Server has the settings of a connection to NATS. Each path may be empty.
type Server struct {
	URL   string // comma-separated server addresses
	Creds string // path of a credentials file, with JWT and seed of a user
	NKey  string // path of a file with a user's NKey seed
	CA    string // path of a PEM file with certificates of authorities
	Cert  string // path of a PEM file with the client's certificate
	Key   string // path of a PEM file with the private key of Cert

	TLSFirst bool // whether the TLS handshake precedes the server's first message
}

// The environment variables with the paths of the files.
const (
	credsVariable = "MILLRACE_NATS_CREDS"
	nkeyVariable  = "MILLRACE_NATS_NKEY"
	caVariable    = "MILLRACE_NATS_TLS_CA"
	certVariable  = "MILLRACE_NATS_TLS_CERT"
	keyVariable   = "MILLRACE_NATS_TLS_KEY"
)

// file is a file that identifies the worker or the server. This package only checks the file. The client library reads it for
// each connection.
type file struct {
	variable, path string
	renew          string // advice for an invalid or expiring file

	// parse returns a description of the file and the period during which it is valid. A zero time means no bound. An error
	// describes the problem without quoting the file.
	parse func(data []byte) (is string, from, until time.Time, err error)
}

// fileError is the error for a file that makes connections impossible.
type fileError struct{ finding.Finding }

// Error returns the variable, the path, the problem and the advice.
func (e fileError) Error() string { return e.String() }

func (c Server) files() (all []file) {
	if c.Creds != "" {
		all = append(all, file{credsVariable, c.Creds,
			"have new credentials issued (nsc generate creds) and write them to the file; they take effect with the next connection", parseCreds})
	}
	if c.NKey != "" {
		all = append(all, file{nkeyVariable, c.NKey, "name a file with the seed of a user, which begins with SU (nk -gen user)", parseSeed})
	}
	if c.CA != "" {
		all = append(all, file{caVariable, c.CA, "name a PEM file with -----BEGIN CERTIFICATE-----", parseAuthorities})
	}
	if c.Cert != "" {
		all = append(all, file{certVariable, c.Cert,
			"write a certificate and the key that it was issued for to the two files; they take effect with the next connection", c.parsePair})
	}
	return all
}

// Inspect checks the files that c names, without connecting. It returns one finding per file.
func (c Server) Inspect(now time.Time) (findings []finding.Finding) {
	for _, f := range c.files() {
		findings = append(findings, f.inspect(now))
	}
	return findings
}

// wrong returns an error that joins all problems of the files, or nil if all files are valid.
func (c Server) wrong(now time.Time) error {
	var errs []error
	for _, f := range c.Inspect(now) {
		if f.Level == finding.Error {
			errs = append(errs, fileError{f})
		}
	}
	return errors.Join(errs...)
}

// lastPart makes inspect warn in the last tenth of a file's lifetime. Automatic renewal happens earlier (cert-manager renews at
// two thirds), so the warning leaves time for a manual renewal.
const lastPart = 10

func (f file) inspect(now time.Time) finding.Finding {
	const second = "2006-01-02 15:04:05 MST"
	wrong := finding.Finding{Level: finding.Error, What: f.variable, Advice: f.renew}
	data, err := os.ReadFile(f.path)
	if err != nil {
		wrong.Found = "cannot be read: " + err.Error()
		wrong.Advice = "mount the file, and let the worker's user read it (in Kubernetes: fsGroup, and the Secret's defaultMode 0440)"
		return wrong
	}
	defer clear(data)
	is, from, until, err := f.parse(data)
	wrong.Found = f.path + " " + is
	switch {
	case err != nil:
		wrong.Found = f.path + " " + err.Error()
		return wrong
	case now.Before(from):
		wrong.Found += fmt.Sprintf(", is not valid before %s, and it is %s now", from.UTC().Format(second), now.UTC().Format(second))
		return wrong
	case until.IsZero():
		return finding.Finding{What: f.variable, Found: wrong.Found}
	case !now.Before(until):
		wrong.Found += fmt.Sprintf(", expired at %s, %s ago", until.UTC().Format(second), now.Sub(until).Round(time.Second))
		return wrong
	}
	right := finding.Finding{What: f.variable, Found: wrong.Found + ", expires at " + until.UTC().Format(second)}
	if left := until.Sub(now); !from.IsZero() && left < until.Sub(from)/lastPart {
		right.Level, right.Advice = finding.Warning, f.renew
		right.Found += fmt.Sprintf(", in %s", left.Round(time.Second))
	}
	return right
}

// parseCreds parses a credentials file, which has a user's JWT and the matching seed. It replaces the libraries' errors, because
// they may quote the token or the seed.
func parseCreds(data []byte) (is string, from, until time.Time, err error) {
	token, err := nkeys.ParseDecoratedJWT(data)
	if err != nil {
		return "", from, until, errors.New("is not a credentials file")
	}
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return "", from, until, errors.New("is not a credentials file: it has no JWT of a user")
	}
	public, err := publicOf(nkeys.ParseDecoratedUserNKey(data))
	if err != nil || public != claims.Subject {
		return "", from, until, errors.New("has no seed of the user that its JWT is for")
	}
	return fmt.Sprintf("is of user %s, %s", claims.Name, public), unixOrNever(cmp.Or(claims.NotBefore, claims.IssuedAt)), unixOrNever(claims.Expires), nil
}

func parseSeed(data []byte) (is string, from, until time.Time, err error) {
	public, err := publicOf(nkeys.ParseDecoratedNKey(data))
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return "", from, until, errors.New("does not hold the NKey seed of a user")
	}
	return "is the seed of user " + public, from, until, nil
}

// publicOf returns the public key of key and wipes key from memory. If err isn't nil, it returns err.
func publicOf(key nkeys.KeyPair, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer key.Wipe()
	return key.PublicKey()
}

// unixOrNever converts Unix seconds to a time, and 0 to the zero time.
func unixOrNever(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

func parseAuthorities(data []byte) (is string, from, until time.Time, err error) {
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return "", from, until, errors.New("holds no certificate")
	}
	return "holds certificates of authorities", from, until, nil
}

func (c Server) parsePair([]byte) (is string, from, until time.Time, err error) {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return "", from, until, fmt.Errorf("does not go with %s (%s): %w", c.Key, keyVariable, err)
	}
	return "is of " + pair.Leaf.Subject.String(), pair.Leaf.NotBefore, pair.Leaf.NotAfter, nil
}
