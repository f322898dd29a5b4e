package natsconn

import (
	"errors"
	"net/url"
	"strings"
)

// errBadAddress means that an address is not a URL.
var errBadAddress = errors.New("an address is not a URL: percent-encode the special characters of user, password and token (%2F for /)")

// withoutAddress replaces an error of net/url, which quotes the address or a part of it, with its password.
func withoutAddress(err error) error {
	var bad *url.Error
	if errors.As(err, &bad) {
		return errBadAddress
	}
	return err
}

// Redact removes user, password and token from a list of server addresses. It doesn't parse them, because an address that isn't a URL may
// have a password too.
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
