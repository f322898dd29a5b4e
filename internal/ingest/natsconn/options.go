package natsconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// options returns the options of the NATS client. Each connection reads the files again, and fails with a
// *fileFinding if one has become invalid.
func (c Server) options() ([]nats.Option, error) {
	if err := c.wrong(time.Now()); err != nil {
		return nil, err
	}
	var opts []nats.Option
	if c.Creds != "" {
		opts = append(opts, nats.UserJWT(c.token, c.signWithCreds))
	}
	if c.NKey != "" {
		key, public, bad := readSeed(c.NKey)
		if bad != nil {
			return nil, bad
		}
		key.Wipe()
		opts = append(opts, nats.Nkey(public, func(nonce []byte) ([]byte, error) { return c.signWithSeed(public, nonce) }))
	}
	if c.CA != "" || c.Cert != "" {
		opts = append(opts, c.secure())
	}
	return opts, nil
}

// secure requires TLS, with the files as they are at each connection.
func (c Server) secure() nats.Option {
	var cert nats.TLSCertHandler
	var authorities nats.RootCAsHandler
	if c.Cert != "" {
		cert = c.certificate
	}
	if c.CA != "" {
		authorities = c.authorities
	}
	return nats.ClientTLSConfig(cert, authorities)
}

func (c Server) token() (string, error) {
	if bad := inspectCreds(c.Creds, time.Now()); bad.Wrong {
		return "", bad
	}
	data, bad := read(credsVariable, c.Creds)
	if bad != nil {
		return "", bad
	}
	defer clear(data)
	return nkeys.ParseDecoratedJWT(data)
}

func (c Server) signWithCreds(nonce []byte) ([]byte, error) {
	data, bad := read(credsVariable, c.Creds)
	if bad != nil {
		return nil, bad
	}
	defer clear(data)
	key, err := nkeys.ParseDecoratedUserNKey(data)
	if err != nil {
		return nil, errors.New("there is no longer a seed in " + c.Creds)
	}
	defer key.Wipe()
	return key.Sign(nonce)
}

// signWithSeed signs for the user that the worker started as, because the client can't become another user.
func (c Server) signWithSeed(public string, nonce []byte) ([]byte, error) {
	key, now, bad := readSeed(c.NKey)
	if bad != nil {
		return nil, bad
	}
	defer key.Wipe()
	if now != public {
		return nil, &fileFinding{Variable: nkeyVariable, Path: c.NKey, Wrong: true,
			Found: "holds the seed of another user than at the worker's start", Advice: "restart the worker"}
	}
	return key.Sign(nonce)
}

func (c Server) certificate() (tls.Certificate, error) {
	for _, finding := range inspectPair(c.Cert, c.Key, time.Now()) {
		if finding.Wrong {
			return tls.Certificate{}, finding
		}
	}
	return tls.LoadX509KeyPair(c.Cert, c.Key)
}

func (c Server) authorities() (*x509.CertPool, error) {
	if bad := inspectAuthorities(c.CA, time.Now()); bad.Wrong {
		return nil, bad
	}
	data, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	return pool, nil
}
