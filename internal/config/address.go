package config

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// serverSchemes lists the URL schemes that the NATS client accepts. An address without a scheme is nats://.
var serverSchemes = []string{"nats", "tls", "ws", "wss"}

// wrongServer returns what is wrong with the address of a NATS server, or "". The text does not contain the address, which may contain a
// password.
func wrongServer(server string) string {
	if server == "" {
		return "an address in the list is empty"
	}
	address := server
	if !strings.Contains(server, "://") {
		if what := wrongHostPort(server[strings.LastIndex(server, "@")+1:], 1); what != "" {
			return what
		}
		address = "nats://" + server // as the client does
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

// isWebSocket reports whether an address uses WebSocket. The client cannot mix such addresses with others.
func isWebSocket(server string) bool {
	return strings.HasPrefix(server, "ws://") || strings.HasPrefix(server, "wss://")
}

// wrongHostPort returns what is wrong with an address of the form host:port, or "". The port must be at least minPort.
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

// wrongListen returns what is wrong with an address to listen on, or "". An empty host means every interface, and port 0 means any free
// port.
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

// onLoopback returns an address without a host with the host 127.0.0.1, and other addresses unchanged. Debug pages are open to the
// network only if the user names a host.
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
