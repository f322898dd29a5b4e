package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// serverSchemes are the forms of address that the NATS client takes; an address without one is nats://.
var serverSchemes = []string{"nats", "tls", "ws", "wss"}

// wrongServer says what is wrong with a NATS server's address; empty if nothing is. It does not repeat the
// address, which may hold a password.
func wrongServer(server string) string {
	if server == "" {
		return "an address in the list is empty"
	}
	if !strings.Contains(server, "://") {
		return wrongHostPort(server[strings.LastIndex(server, "@")+1:], 1)
	}
	u, err := url.Parse(server)
	if err != nil {
		return "an address that is no URL"
	}
	switch {
	case !slices.Contains(serverSchemes, u.Scheme):
		return "addresses begin with " + spoken([]string{"nats://", "tls://", "ws://", "wss://"}) + ", not with " + u.Scheme + "://"
	case u.Hostname() == "":
		return "an address has no host"
	case u.Port() != "":
		return wrongHostPort(u.Host, 1)
	}
	return ""
}

// isWebSocket says whether an address is reached over WebSocket, which the client cannot mix with others.
func isWebSocket(server string) bool {
	return strings.HasPrefix(server, "ws://") || strings.HasPrefix(server, "wss://")
}

// wrongHostPort says what is wrong with host:port; empty if nothing is. The port is at least least.
func wrongHostPort(address string, least int) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "not host:port"
	}
	if n, err := strconv.Atoi(port); err != nil || n < least || n > 65535 {
		return "a port is a number from " + strconv.Itoa(least) + " to 65535"
	}
	return ""
}

// wrongListen says what is wrong with an address to listen on. An empty host is every interface, port 0 one
// that the system picks.
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

// isLoopback says whether an address to listen on can be reached from this machine alone.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// onLoopback puts this machine alone where an address names no host: what is behind it is open to the network only for
// who asks for that in so many words.
func onLoopback(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// collide says whether two addresses to listen on cannot both be had.
func collide(a, b string) bool {
	aHost, aPort, _ := net.SplitHostPort(a)
	bHost, bPort, _ := net.SplitHostPort(b)
	return aPort == bPort && aPort != "0" && (aHost == bHost || aHost == "" || bHost == "")
}
