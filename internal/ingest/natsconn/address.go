package natsconn

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// errBadAddress is the kind of an error about the text of an address.
var errBadAddress = errors.New("bad address")

// withoutAddress removes the address from an error of net/url, which quotes it with its password.
func withoutAddress(err error) error {
	var bad *url.Error
	if errors.As(err, &bad) {
		return fmt.Errorf("%w: %w", errBadAddress, bad.Err)
	}
	return err
}

// Redact removes user, password and token from a list of server addresses.
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
