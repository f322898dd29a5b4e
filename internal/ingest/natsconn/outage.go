package natsconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/pause"
)

// outage logs the loss of a connection, and the reason why reconnects fail. The client library reports only some failures. For
// example, it doesn't report an expired server certificate.
type outage struct {
	log     *slog.Logger
	advice  func(error) string // returns advice on an error
	watched atomic.Bool        // whether a goroutine runs watch

	mu   sync.Mutex
	last error // error of the latest attempt that the client reported
}

const (
	firstWord = time.Second      // time from the loss until the first log line of watch
	everyWord = 30 * time.Second // time between further log lines
)

// began handles the loss of a connection.
func (o *outage) began(nc *nats.Conn, err error) {
	if nc.IsClosed() { // this process closed it
		return
	}
	o.log.Warn("disconnected from NATS, reconnecting", "error", err)
	if o.watched.CompareAndSwap(false, true) {
		o.note(nil) // forget the error of an earlier outage
		go o.watch(nc)
	}
}

// failed handles an attempt to reconnect that reached no server.
func (o *outage) failed(_ *nats.Conn, err error) { o.note(err) }

// note records the error of an attempt for watch, because there are several attempts per second.
func (o *outage) note(err error) {
	o.mu.Lock()
	o.last = err
	o.mu.Unlock()
}

// watch logs the reason for the outage at intervals until the connection is up or closed.
func (o *outage) watch(nc *nats.Conn) {
	since, spoken := time.Now(), time.Time{}
	tick := time.NewTicker(firstWord)
	defer tick.Stop()
	for now := range tick.C {
		if over(nc) {
			o.watched.Store(false)
			// An outage that began before this Store has started no watch.
			if over(nc) || !o.watched.CompareAndSwap(false, true) {
				return
			}
			since, spoken = now, time.Time{}
		}
		if now.Sub(spoken) >= everyWord {
			o.say(nc, now.Sub(since))
			spoken = now
		}
	}
}

func over(nc *nats.Conn) bool { return nc.IsConnected() || nc.IsClosed() }

func (o *outage) say(nc *nats.Conn, lasted time.Duration) {
	o.mu.Lock()
	err := o.last
	o.mu.Unlock()
	if e := nc.LastError(); e != nil {
		err = e // a server was reached, but the handshake failed
	}
	if err == nil {
		err = nats.ErrNoServers
	}
	err = withoutAddress(err)
	o.log.Warn("not connected to NATS, trying again", "for", lasted.Round(time.Second).String(), "error", err, "advice", o.advice(err))
}

// connectTimeout is the time limit for connecting to one server.
const connectTimeout = 5 * time.Second

// errStalled is the error of a connection that was open during a stall of the process.
var errStalled = errors.New("the process was stopped for a while, and what this connection held is too old")

// dialer opens connections that deliver no outdated bytes. The kernel drops bytes that the server doesn't acknowledge within the
// time unacknowledged (Linux only). After a stall of the process, a connection transfers nothing more.
type dialer struct{ watch *pause.Watch }

// Dial implements nats.CustomDialer. It returns the connection below TLS.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	raw, err := (&net.Dialer{Timeout: connectTimeout, Control: dropLate}).Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &freshConn{Conn: raw, watch: d.watch, stalls: d.watch.Count()}, nil
}

// freshConn is a connection that fails after the first stall of the process.
type freshConn struct {
	net.Conn
	watch  *pause.Watch
	stalls uint64 // number of stalls when the connection was opened
}

func (c *freshConn) check() error {
	if c.watch.Count() == c.stalls {
		return nil
	}
	_ = c.Close() // concurrent readers and writers fail too
	return errStalled
}

func (c *freshConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if stalled := c.check(); stalled != nil {
		return 0, stalled
	}
	return n, err
}

func (c *freshConn) Write(b []byte) (int, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

var errBadAddress = errors.New("an address is not a URL: percent-encode the special characters of user, password and token (%2F for /)")

// withoutAddress replaces an error of net/url with errBadAddress, because the error may quote a password.
func withoutAddress(err error) error {
	var bad *url.Error
	if errors.As(err, &bad) {
		return errBadAddress
	}
	return err
}

// Redact removes user, password and token from a comma-separated list of server addresses. It also works for invalid URLs.
func Redact(urls string) string {
	list := strings.Split(urls, ",")
	for i, raw := range list {
		scheme, rest, found := strings.Cut(strings.TrimSpace(raw), "://")
		if !found {
			scheme, rest = "", scheme
		} else {
			scheme += "://"
		}
		list[i] = scheme + rest[strings.LastIndexByte(rest, '@')+1:]
	}
	return strings.Join(list, ",")
}

// refused reports whether err means that a server refuses the worker's user, or that a file of the worker is invalid.
func refused(err error) bool {
	var wrong fileError
	return errors.As(err, &wrong) || errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired) || errors.Is(err, nats.ErrNkeysNotSupported)
}

// unknownAuthority reports whether err means that an unknown authority issued the server's certificate.
func unknownAuthority(err error) bool {
	var unknown x509.UnknownAuthorityError
	var roots x509.SystemRootsError
	return errors.As(err, &unknown) || errors.As(err, &roots)
}

// refusesCertificate reports whether err means that the server requires a client certificate or refuses the worker's. The server
// sends a TLS alert and closes the connection. The client reports one of the two, and the alert has no error type.
func refusesCertificate(err error) bool {
	_, alert, found := strings.Cut(err.Error(), "remote error: tls: ")
	if found {
		return strings.Contains(alert, "certificate") || strings.Contains(alert, "access denied")
	}
	return errors.Is(err, nats.ErrTLS) && strings.Contains(err.Error(), "closed by remote after TLS handshake")
}

// Permanent reports whether an error of Open persists until the worker's settings or credentials are changed. Permanent errors are
// an invalid address or file, a user or certificate that the server refuses, and a server certificate that doesn't match the
// settings. Open tries several addresses in random order and returns the last error.
func Permanent(err error) bool {
	var host x509.HostnameError
	return refused(err) || unknownAuthority(err) || refusesCertificate(err) || errors.As(err, &host) ||
		errors.Is(err, nats.ErrSecureConnWanted) || errors.Is(err, errBadAddress)
}

// advice returns advice for the user on err, the error of a failed connection.
func (c Server) advice(err error) string {
	var op *net.OpError
	network := errors.As(err, &op)
	var noTLS tls.RecordHeaderError
	wrong := c.wrong(time.Now())
	switch {
	case network && op.Op == "read" && op.Timeout(), errors.Is(err, io.EOF):
		return "the program at that address sent nothing: if it is a NATS server with handshake_first in its tls block, set MILLRACE_NATS_TLS_FIRST=true; " +
			"otherwise check MILLRACE_NATS_URL and the server's log"
	case network && op.Op == "dial", errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout):
		return "is a server running there, and is MILLRACE_NATS_URL right? Without it the worker starts its own server"
	case wrong != nil:
		return wrong.Error()
	case refused(err):
		return "the server does not accept " + c.user()
	case unknownAuthority(err):
		return "name the file of the authority that issued the server's certificate in " + caVariable
	case refusesCertificate(err):
		return "the server does not accept the worker's certificate, or requires one: check " + certVariable + " and " + keyVariable + ", and the server's tls block"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server there has no TLS: let MILLRACE_NATS_URL begin with nats:// and unset MILLRACE_NATS_TLS_CA, _CERT and _KEY, or enable TLS on the server"
	case errors.As(err, &noTLS) && c.TLSFirst:
		return "the program at that address does not begin with TLS: unset MILLRACE_NATS_TLS_FIRST, or check MILLRACE_NATS_URL"
	}
	return "compare MILLRACE_NATS_URL and the MILLRACE_NATS_ files with the server's settings; its log may say more"
}

// user describes the worker's user, and the setting that changes it.
func (c Server) user() string {
	switch {
	case c.Creds != "":
		return "the user of " + c.Creds + ": write other credentials to that file (" + credsVariable + "); they take effect with the next connection"
	case c.NKey != "":
		return "the user whose seed is in " + c.NKey + ": add its public key (worker check prints it) to the server's users, or change " + nkeyVariable + " and restart the worker"
	case strings.Contains(c.URL, "@"):
		return "the user, password or token in MILLRACE_NATS_URL: check them there and in the server's settings"
	}
	return "the worker without a user: set " + credsVariable + ", " + nkeyVariable + " or a user in MILLRACE_NATS_URL"
}
