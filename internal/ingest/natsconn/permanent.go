package natsconn

import (
	"crypto/x509"
	"errors"
	"strings"

	"github.com/nats-io/nats.go"
)

// Permanent reports whether an error of Open stays until somebody changes the worker's settings or credentials: a wrong address,
// a file that no server accepts, a user or a certificate that the server refuses, or a server whose certificate doesn't match the
// settings. Every other error may go away while the worker waits, such as a server that is not there yet. Of several addresses, the
// client tries all in a random order and returns the last error.
func Permanent(err error) bool {
	var unknown x509.UnknownAuthorityError
	var roots x509.SystemRootsError
	var host x509.HostnameError
	switch {
	case refused(err), errors.Is(err, nats.ErrNkeysNotSupported), errors.Is(err, nats.ErrSecureConnWanted):
		return true
	case errors.Is(err, errBadAddress), errors.As(err, &unknown), errors.As(err, &roots), errors.As(err, &host):
		return true
	}
	return refusesCertificate(err)
}

// refusesCertificate reports whether the server ended the connection because of the worker's certificate, or because there is none.
// The server sends a TLS alert then, which has no error type, and closes the connection. The client sees one or the other.
func refusesCertificate(err error) bool {
	_, alert, found := strings.Cut(err.Error(), "remote error: tls: ")
	if found {
		return strings.Contains(alert, "certificate") || strings.Contains(alert, "access denied")
	}
	return errors.Is(err, nats.ErrTLS) && strings.Contains(err.Error(), "closed by remote after TLS handshake")
}
