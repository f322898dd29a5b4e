package ingest

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Connection says how to reach NATS. Files are paths; empty means none.
type Connection struct {
	URL   string // server addresses, comma separated
	Creds string // a credentials file (JWT and seed)
	NKey  string // a file with an NKey seed
	CA    string // PEM file of certificate authorities
	Cert  string // PEM file of the client's certificate
	Key   string // PEM file of its key
}

const (
	// connectTimeout bounds how long one server may take to answer.
	connectTimeout = 5 * time.Second

	// pingInterval is how often the server is asked whether it is there; after two that it did not answer the connection
	// counts as lost. A cut that neither end is told of is noticed by nothing else.
	pingInterval = 10 * time.Second
)

// Connect opens a connection that, once open, reconnects for ever. What happens to it is logged, and
// reconnections are told to the observer.
func Connect(c Connection, name string, log *slog.Logger, observer Observer) (*nats.Conn, error) {
	opts, err := c.options(name)
	if err != nil {
		return nil, err
	}
	opts = append(opts,
		nats.Timeout(connectTimeout),
		nats.PingInterval(pingInterval),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250*time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, time.Second),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() { // closed by us otherwise
				log.Warn("disconnected from NATS, reconnecting", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("reconnected to NATS", "server", nc.ConnectedServerName())
			observer.Reconnected()
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			log.Warn("NATS connection", "subject", subject, "error", err)
		}),
	)
	nc, err := nats.Connect(c.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS at %s: %w (%s)", Redact(c.URL), withoutAddress(err), advice(err))
	}
	return nc, nil
}

func (c Connection) options(name string) ([]nats.Option, error) {
	opts := []nats.Option{nats.Name(name)}
	if err := c.readable(); err != nil {
		return nil, err
	}
	if c.Creds != "" {
		opts = append(opts, nats.UserCredentials(c.Creds))
	}
	if c.NKey != "" {
		o, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, fmt.Errorf("MILLRACE_NATS_NKEY: %s does not hold an NKey seed: %w", c.NKey, err)
		}
		opts = append(opts, o)
	}
	if c.CA != "" {
		opts = append(opts, nats.RootCAs(c.CA))
	}
	if c.Cert != "" {
		opts = append(opts, nats.ClientCert(c.Cert, c.Key))
	}
	return opts, nil
}

// readable finds out whether the files are there and can be read, and names every one that cannot.
func (c Connection) readable() error {
	var errs []error
	for _, f := range []struct{ variable, path string }{
		{"MILLRACE_NATS_CREDS", c.Creds}, {"MILLRACE_NATS_NKEY", c.NKey}, {"MILLRACE_NATS_TLS_CA", c.CA},
		{"MILLRACE_NATS_TLS_CERT", c.Cert}, {"MILLRACE_NATS_TLS_KEY", c.Key},
	} {
		if f.path == "" {
			continue
		}
		file, err := os.Open(f.path)
		if err == nil {
			err = file.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: name a file that the worker can read", f.variable, err))
		}
	}
	return errors.Join(errs...)
}

// advice says what to look at after a connection that failed.
func advice(err error) string {
	switch {
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return "is a server running there, and is MILLRACE_NATS_URL right? Without it the worker starts a server of its own"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked):
		return "check MILLRACE_NATS_CREDS, MILLRACE_NATS_NKEY or the user in MILLRACE_NATS_URL"
	case errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted),
		strings.Contains(err.Error(), "tls"), strings.Contains(err.Error(), "x509"), strings.Contains(err.Error(), "certificate"):
		return "check MILLRACE_NATS_TLS_CA, MILLRACE_NATS_TLS_CERT and MILLRACE_NATS_TLS_KEY"
	}
	return "check MILLRACE_NATS_URL and the MILLRACE_NATS_ files"
}

// withoutAddress takes the address out of an error of net/url, which quotes it with its password.
func withoutAddress(err error) error {
	var bad *url.Error
	if errors.As(err, &bad) {
		return fmt.Errorf("bad address: %w", bad.Err)
	}
	return err
}

// Redact takes user, password and token out of a list of server addresses.
func Redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, raw := range list {
		raw = strings.TrimSpace(raw)
		if u, err := url.Parse(raw); err == nil && u.User != nil {
			u.User = nil
			raw = u.String()
		} else if at := strings.LastIndexByte(raw, '@'); at >= 0 {
			raw = raw[at+1:]
		}
		list[i] = raw
	}
	return strings.Join(list, ",")
}
