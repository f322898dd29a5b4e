package natsconn

import (
	"time"

	"github.com/nats-io/nats.go"
)

// options returns the options of the NATS client. Each connection reads the files again, and fails with a
// *fileFinding if one has become invalid.
func (c Server) options() ([]nats.Option, error) {
	if err := c.wrong(time.Now()); err != nil {
		return nil, err
	}
	var opts []nats.Option
	if c.Creds != "" {
		creds := credsFile(c.Creds)
		opts = append(opts, nats.UserJWT(creds.token, creds.sign))
	}
	if c.NKey != "" {
		seed := seedFile(c.NKey)
		key, public, bad := seed.read()
		if bad != nil {
			return nil, bad
		}
		key.Wipe()
		opts = append(opts, nats.Nkey(public, func(nonce []byte) ([]byte, error) { return seed.sign(public, nonce) }))
	}
	if c.CA != "" || c.Cert != "" {
		opts = append(opts, c.secure())
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// secure requires TLS, with the files as they are at each connection.
func (c Server) secure() nats.Option {
	var cert nats.TLSCertHandler
	var roots nats.RootCAsHandler
	if c.Cert != "" {
		cert = pair{c.Cert, c.Key}.load
	}
	if c.CA != "" {
		roots = authorities(c.CA).pool
	}
	return nats.ClientTLSConfig(cert, roots)
}
