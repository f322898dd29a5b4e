package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Options are what a client connects with. Each connection reads the files anew and fails with a *Finding that
// says what is wrong with one by then.
func (f Files) Options() ([]nats.Option, error) {
	if err := f.Wrong(time.Now()); err != nil {
		return nil, err
	}
	var opts []nats.Option
	if f.Creds != "" {
		opts = append(opts, nats.UserJWT(f.token, f.signWithCreds))
	}
	if f.NKey != "" {
		key, public, bad := readSeed(f.NKey)
		if bad != nil {
			return nil, bad
		}
		key.Wipe()
		opts = append(opts, nats.Nkey(public, func(nonce []byte) ([]byte, error) { return f.signWithSeed(public, nonce) }))
	}
	if f.CA != "" || f.Cert != "" {
		opts = append(opts, f.secure())
	}
	return opts, nil
}

// secure demands TLS, with the files as they are at each connection.
func (f Files) secure() nats.Option {
	var cert nats.TLSCertHandler
	var authorities nats.RootCAsHandler
	if f.Cert != "" {
		cert = f.certificate
	}
	if f.CA != "" {
		authorities = f.authorities
	}
	return nats.ClientTLSConfig(cert, authorities)
}

func (f Files) token() (string, error) {
	if bad := inspectCreds(f.Creds, time.Now()); bad.Wrong {
		return "", bad
	}
	data, bad := read(CredsVariable, f.Creds)
	if bad != nil {
		return "", bad
	}
	defer clear(data)
	return nkeys.ParseDecoratedJWT(data)
}

func (f Files) signWithCreds(nonce []byte) ([]byte, error) {
	data, bad := read(CredsVariable, f.Creds)
	if bad != nil {
		return nil, bad
	}
	defer clear(data)
	key, err := nkeys.ParseDecoratedUserNKey(data)
	if err != nil {
		return nil, errors.New("the seed went out of " + f.Creds)
	}
	defer key.Wipe()
	return key.Sign(nonce)
}

// signWithSeed signs for the user that the worker started as: the client cannot become another one.
func (f Files) signWithSeed(public string, nonce []byte) ([]byte, error) {
	key, now, bad := readSeed(f.NKey)
	if bad != nil {
		return nil, bad
	}
	defer key.Wipe()
	if now != public {
		return nil, &Finding{Variable: NKeyVariable, Path: f.NKey, Wrong: true,
			Found: "holds the seed of another user than at the worker's start", Advice: "start the worker again"}
	}
	return key.Sign(nonce)
}

func (f Files) certificate() (tls.Certificate, error) {
	for _, finding := range inspectPair(f.Cert, f.Key, time.Now()) {
		if finding.Wrong {
			return tls.Certificate{}, finding
		}
	}
	return tls.LoadX509KeyPair(f.Cert, f.Key)
}

func (f Files) authorities() (*x509.CertPool, error) {
	if bad := inspectAuthorities(f.CA, time.Now()); bad.Wrong {
		return nil, bad
	}
	data, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	return pool, nil
}
