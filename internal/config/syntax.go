package config

import (
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/wildcard"
)

// The "wrong" functions in this file return a description of a text's problem, or "". The tag "is" and the checks in
// validate.go use them.

// memberName matches the names that table.Table.Annotate accepts.
var memberName = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

func wrongMember(name string) string {
	if !memberName.MatchString(name) {
		return "not a name of 1 to 64 letters, digits and underscores"
	}
	return ""
}

// serverSchemes lists the URL schemes that the NATS client accepts. An address without a scheme has the scheme nats.
var serverSchemes = []string{"nats", "tls", "ws", "wss"}

// wrongServer checks the address of a NATS server. The result does not contain the address, because the address may
// contain a password.
func wrongServer(server string) string {
	if server == "" {
		return "an address in the list is empty"
	}
	address := server
	if !strings.Contains(server, "://") {
		if what := wrongHostPort(server[strings.LastIndex(server, "@")+1:], 1); what != "" {
			return what
		}
		address = "nats://" + server // the NATS client does the same
	}
	u, err := url.Parse(address)
	if err != nil {
		return "an address is not a URL"
	}
	switch {
	case strings.Contains(u.Path+u.RawQuery+u.Fragment, "@"):
		return "an address has its @ behind a / ? or #"
	case !slices.Contains(serverSchemes, u.Scheme):
		return "addresses begin with " + joinOr([]string{"nats://", "tls://", "ws://", "wss://"}) + ", not with " + u.Scheme + "://"
	case u.Hostname() == "":
		return "an address has no host"
	case u.Port() != "":
		return wrongHostPort(u.Host, 1)
	}
	return ""
}

// isWebSocket reports whether an address uses WebSocket. The NATS client cannot mix such addresses with other
// addresses.
func isWebSocket(server string) bool {
	return strings.HasPrefix(server, "ws://") || strings.HasPrefix(server, "wss://")
}

// wrongHostPort checks an address of the form host:port. The port must be at least minPort.
func wrongHostPort(address string, minPort int) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "not host:port"
	}
	if n, err := strconv.Atoi(port); err != nil || n < minPort || n > 65535 {
		return "a port is a number from " + strconv.Itoa(minPort) + " to 65535"
	}
	return ""
}

// wrongListen checks an address to listen on. An empty host means every interface, and port 0 means any free port.
func wrongListen(address string) string {
	if what := wrongHostPort(address, 0); what != "" {
		return what
	}
	host, _, _ := net.SplitHostPort(address)
	if strings.ContainsAny(host, " /") {
		return "not host:port"
	}
	return ""
}

// isLoopback reports whether only this machine can reach an address to listen on.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// onLoopback adds the host 127.0.0.1 to an address without a host. It returns other addresses unchanged. So debug pages
// are open to the network only if the user names a host.
func onLoopback(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// collide reports whether a process cannot listen on both addresses.
func collide(a, b string) bool {
	aHost, aPort, _ := net.SplitHostPort(a)
	bHost, bPort, _ := net.SplitHostPort(b)
	return aPort == bPort && aPort != "0" && (aHost == bHost || aHost == "" || bHost == "")
}

// WrongFilter returns a description of the problem with a NATS subject filter, or "". A filter consists of tokens
// separated by dots. The token * matches any single token. The token > must be the last one, and matches one or more
// tokens.
// Source: the NATS documentation, "Subject-Based Messaging".
func WrongFilter(filter string) string {
	if filter == "" {
		return "a subject in the list is empty"
	}
	if strings.ContainsFunc(filter, blank) {
		return "a subject contains a space or a control character"
	}
	tokens := strings.Split(filter, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return "a subject has an empty token"
		case token == ">" && i != len(tokens)-1:
			return "the wildcard > may be only the last token of a subject"
		case len(token) > 1 && strings.ContainsAny(token, "*>"):
			return "a wildcard must be a whole token"
		}
	}
	if reserved(tokens[0]) {
		return "the server reserves subjects that begin with $ or _INBOX"
	}
	return ""
}

func wrongPrefix(prefix string) string {
	if prefix == "" {
		return "empty"
	}
	if strings.ContainsAny(prefix, "*>") {
		return "a prefix may contain no wildcards"
	}
	return WrongFilter(prefix)
}

// wrongDomain checks the name of a JetStream domain. A domain is one token of a subject.
func wrongDomain(domain string) string {
	if strings.ContainsAny(domain, ".*>") || strings.ContainsFunc(domain, blank) {
		return "a domain may contain none of . * > and no spaces"
	}
	return ""
}

// wrongAPIPrefix checks the prefix of JetStream's subjects. Unlike other prefixes, this prefix may begin with $.
func wrongAPIPrefix(prefix string) string { return wrongPrefix(strings.TrimPrefix(prefix, "$")) }

// wrongName checks the name of a stream or a consumer. The server refuses dots, wildcards and blanks. It also refuses
// slashes, because a stream's name is also the name of a directory.
func wrongName(name string) string {
	switch {
	case name == "":
		return "empty"
	case len(name) > 255:
		return "longer than 255 bytes"
	case strings.ContainsAny(name, `.*>/\`) || strings.ContainsFunc(name, blank):
		return `a name may contain none of . * > / \ and no spaces`
	}
	return ""
}

// blank reports whether r is a space or a control character.
func blank(r rune) bool { return r <= ' ' || r == 0x7f }

// reserved reports whether the server reserves subjects that begin with the given token.
func reserved(token string) bool { return strings.HasPrefix(token, "$") || token == "_INBOX" }

// under reports whether a filter can match the prefix or a subject below it.
func under(filter, prefix string) bool {
	return wildcard.Overlap(filter, prefix) || wildcard.Overlap(filter, prefix+".>")
}

// wrongFile checks that path is the path of a readable file, and not a key that was pasted instead.
func wrongFile(path string) string {
	if pasted(path) {
		return "looks like a key and not like the path of a file"
	}
	file, err := os.Open(path)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return "cannot be read: " + err.Error()
	}
	defer func() { _ = file.Close() }() // the file is only read
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return "is a directory"
	}
	return ""
}
