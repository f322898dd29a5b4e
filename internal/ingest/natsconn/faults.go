package natsconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// fault is a kind of error of a connection.
type fault struct {
	is        func(error) bool
	permanent bool   // whether the error persists until the settings or the credentials are changed
	early     bool   // whether the error comes before the worker's files are used
	advice    string // empty if the server refuses the worker's user
}

// faults lists the faults that have their own advice or are permanent. The first match applies.
var faults = []fault{
	{is: isAny(errBeginsWithTLS), permanent: true, early: true, advice: "set MILLRACE_NATS_TLS_FIRST=true"},
	{is: isSilent, early: true, advice: "the program at that address sent nothing: if it is a NATS server with handshake_first in its tls block, " +
		"set MILLRACE_NATS_TLS_FIRST=true; otherwise check MILLRACE_NATS_URL and the server's log"},
	{is: isUnreachable, early: true, advice: "is a server running there, and is MILLRACE_NATS_URL right? Without it the worker starts its own server"},
	{is: isAs[fileError], permanent: true, advice: otherAdvice},
	{is: refused, permanent: true},
	{is: isUnknownAuthority, permanent: true, advice: "name the file of the authority that issued the server's certificate in " + caVariable},
	{is: refusesCertificate, permanent: true, advice: "the server does not accept the worker's certificate, or requires one: check " +
		certVariable + " and " + keyVariable + ", and the server's tls block"},
	{is: isAny(nats.ErrSecureConnWanted), permanent: true, advice: "the server there has no TLS: let MILLRACE_NATS_URL begin with nats:// " +
		"and unset MILLRACE_NATS_TLS_CA, _CERT and _KEY, or enable TLS on the server"},
	{is: speaksFirst, permanent: true, advice: "the NATS server at that address does not begin with TLS: unset MILLRACE_NATS_TLS_FIRST, " +
		"or set handshake_first in the server's tls block"},
	{is: isAs[tls.RecordHeaderError], advice: "the program at that address does not speak TLS: check MILLRACE_NATS_URL"},
	{is: isAs[x509.HostnameError], permanent: true, advice: otherAdvice},
	{is: isAny(errBadAddress), permanent: true, advice: otherAdvice},
	{is: func(error) bool { return true }, advice: otherAdvice},
}

const otherAdvice = "compare MILLRACE_NATS_URL and the MILLRACE_NATS_ files with the server's settings; its log may say more"

func faultOf(err error) fault {
	return faults[slices.IndexFunc(faults, func(f fault) bool { return f.is(err) })]
}

// Permanent reports whether an error of Open persists until the worker's settings or credentials are changed. Such
// errors are an invalid address or file, and a user or certificate that the server refuses. A server certificate or a
// TLS handshake that doesn't match the settings is permanent, too. Open tries several addresses in random order and
// returns the last error.
func Permanent(err error) bool { return faultOf(err).permanent }

// advice returns advice for the user on err, the error of a failed connection.
func (c Server) advice(err error) string {
	f, wrong := faultOf(err), c.wrong(time.Now())
	switch {
	case wrong != nil && !f.early:
		return wrong.Error()
	case f.advice == "":
		return "the server does not accept " + c.user()
	}
	return f.advice
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

func isAny(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}

func isAs[T error](err error) bool {
	_, is := errors.AsType[T](err)
	return is
}

// errBeginsWithTLS replaces the error of a server that waits for a TLS handshake.
var errBeginsWithTLS = errors.New("the server begins with TLS (handshake_first in its tls block)")

// isSilent reports whether err means that the other end sent nothing, or ended the connection.
func isSilent(err error) bool {
	op, network := errors.AsType[*net.OpError](err)
	return (network && (op.Op == "read" || op.Op == "write") || errors.Is(err, io.EOF)) && !refusesCertificate(err)
}

func isUnreachable(err error) bool {
	op, network := errors.AsType[*net.OpError](err)
	return network && op.Op == "dial" || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout)
}

// refused reports whether err means that a server refuses the worker's user.
var refused = isAny(nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired, nats.ErrNkeysNotSupported)

// isUnknownAuthority reports whether err means that an unknown authority issued the server's certificate.
func isUnknownAuthority(err error) bool {
	return isAs[x509.UnknownAuthorityError](err) || isAs[x509.SystemRootsError](err)
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

// speaksFirst reports whether err means that a NATS server sent its first message in place of a TLS handshake.
func speaksFirst(err error) bool {
	noTLS, is := errors.AsType[tls.RecordHeaderError](err)
	return is && string(noTLS.RecordHeader[:]) == "INFO "
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
