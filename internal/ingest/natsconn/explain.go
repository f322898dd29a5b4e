package natsconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/nats-io/nats.go"
)

// explainer says why a connection to a server did not come about.
type explainer struct{ Server }

// advice returns what to check after a failed connection.
func (c explainer) advice(err error) string {
	if text := c.explain(err); text != "" {
		return text
	}
	if errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || isNetwork(err) {
		return "is a server running there, and is MILLRACE_NATS_URL right? Without it the worker starts its own server"
	}
	return "check MILLRACE_NATS_URL and the MILLRACE_NATS_ files"
}

// isNetwork reports whether the server wasn't reached at all.
func isNetwork(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// explain returns why a connection failed and what to do, if the reason is the identity of the worker or the server.
// Otherwise it returns an empty text.
func (c explainer) explain(err error) string {
	inURL := strings.Contains(c.URL, "@") // the addresses contain a user or a token
	var finding *fileFinding
	if errors.As(err, &finding) {
		return finding.Advice
	}
	if text := c.explainServer(err); text != "" {
		return text
	}
	if text := c.explainAlert(err); text != "" {
		return text
	}
	switch {
	case c.TLSFirst && errors.Is(err, io.EOF):
		return "the server closed the connection in the TLS handshake: its log says why"
	case silent(err), errors.Is(err, io.EOF):
		return "the program at that address sent nothing: if it is a NATS server with handshake_first in its tls block, set MILLRACE_NATS_TLS_FIRST=true; otherwise check MILLRACE_NATS_URL and the server's log"
	case errors.Is(err, nats.ErrAuthExpired):
		return "the worker's credentials have expired: " + c.renewal(inURL)
	case errors.Is(err, nats.ErrAuthRevoked):
		return "the server's operator has revoked this user: " + c.renewal(inURL)
	case errors.Is(err, nats.ErrAccountAuthExpired):
		return "the JWT of the user's account has expired: have the server's operator renew the account"
	case errors.Is(err, nats.ErrAuthorization):
		return c.explainRefusal(inURL)
	case errors.Is(err, nats.ErrNkeysNotSupported):
		return "the server knows no NKeys: unset " + nkeyVariable + ", or add the user to the server's configuration"
	case errors.Is(err, nats.ErrSecureConnWanted):
		return "the server there has no TLS: let MILLRACE_NATS_URL begin with nats:// and unset MILLRACE_NATS_TLS_CA, _CERT and _KEY, or enable TLS on the server"
	}
	return ""
}

// silent reports whether a server was reached and then sent nothing.
func silent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "read" && op.Timeout()
}

// explainServer explains why the worker doesn't accept the server's certificate.
func (c explainer) explainServer(err error) string {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var roots x509.SystemRootsError
	switch {
	case errors.As(err, &unknown), errors.As(err, &roots):
		if c.CA == "" {
			return "no authority that this system knows has issued the server's certificate: name the file of the one that did in " + caVariable
		}
		return "none of the authorities in " + c.CA + " has issued the server's certificate: put the certificate of the one that did into the file of " + caVariable
	case errors.As(err, &host):
		return fmt.Sprintf("the server's certificate is not for the name %s but for %s: use one of its names in MILLRACE_NATS_URL, or have the server's certificate issued for this name",
			host.Host, names(host.Certificate))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Sprintf("the server's certificate is valid from %s to %s: renew it at the server, or set the clock of this machine",
			invalid.Cert.NotBefore.UTC().Format("2006-01-02 15:04"), invalid.Cert.NotAfter.UTC().Format("2006-01-02 15:04"))
	case errors.As(err, &invalid):
		return "the server's certificate cannot be used: have a new one issued for the server"
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		if c.TLSFirst {
			return "the program at that address does not begin with TLS: unset MILLRACE_NATS_TLS_FIRST unless the server's tls block has handshake_first, and check host and port in MILLRACE_NATS_URL"
		}
		return "the program at that address does not speak TLS as a NATS server does: check host and port in MILLRACE_NATS_URL"
	}
	return ""
}

// names lists the names that a certificate is for.
func names(c *x509.Certificate) string {
	all := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no name (it has no subject alternative names)"
	}
	return strings.Join(all, ", ")
}

// explainAlert explains why the server doesn't accept the client's certificate. TLS alerts have no error types, so it
// checks their texts.
func (c explainer) explainAlert(err error) string {
	text := err.Error()
	alert := func(of string) bool { return strings.Contains(text, "remote error: tls: "+of) }
	switch {
	case (alert("certificate required") || alert("bad certificate")) && c.Cert == "":
		return "the server requires a client certificate: name one in " + certVariable + " and its key in " + keyVariable
	case alert("expired certificate"):
		return "the server says that " + c.Cert + " has expired: have a new certificate issued, or set the server's clock"
	case alert("certificate required"), alert("unknown certificate authority"), alert("bad certificate"), alert("unknown certificate"):
		// This includes "certificate required", because a client sends no certificate that the server's authorities
		// didn't issue.
		return "the server does not accept " + c.Cert + ": have it issued by an authority that the server's tls block names, for clients (extended key usage clientAuth)"
	case alert(""):
		return "the server ended the TLS handshake: compare its tls block with MILLRACE_NATS_TLS_CA, _CERT and _KEY"
	case errors.Is(err, nats.ErrTLS) && c.Cert == "":
		return "the server closed the connection in the TLS handshake, as servers do that require a client certificate: name one in " + certVariable + " and its key in " + keyVariable
	case errors.Is(err, nats.ErrTLS):
		return "the server closed the connection in the TLS handshake: its log says why; check that an authority in its tls block has issued " + c.Cert
	}
	return ""
}

// explainRefusal explains the refusal of a user that the server doesn't know.
func (c explainer) explainRefusal(inURL bool) string {
	switch {
	case c.Creds != "":
		return "the server does not accept the user of " + c.Creds + ": does the user belong to this server's operator, and does it still exist? Write other credentials to the file of " + credsVariable
	case c.NKey != "":
		return "the server does not know the user whose seed is in " + c.NKey + ": add its public key (worker check prints it) to the server's users, or change the file of " + nkeyVariable
	case inURL:
		return "the server does not accept the user, password or token in MILLRACE_NATS_URL: check them there and in the server's configuration"
	case c.Cert != "":
		return "no user of the server belongs to the certificate " + c.Cert + ": with verify_and_map the server needs a user with the name of the certificate's subject or alternative name; " +
			"otherwise set MILLRACE_NATS_CREDS, MILLRACE_NATS_NKEY or a user in MILLRACE_NATS_URL"
	}
	return "the server requires a user, and the worker has none: set " + credsVariable + ", " + nkeyVariable + " or a user in MILLRACE_NATS_URL"
}

// renewal returns how to renew the worker's credentials.
func (c explainer) renewal(inURL bool) string {
	switch {
	case c.Creds != "":
		return "write new credentials to " + c.Creds + " (" + credsVariable + "); they take effect with the next connection, which the worker keeps trying"
	case c.NKey != "":
		return "have the server's operator renew the user of " + nkeyVariable
	case inURL:
		return "set another user in MILLRACE_NATS_URL and restart the worker"
	}
	return "renew what " + certVariable + " names"
}
