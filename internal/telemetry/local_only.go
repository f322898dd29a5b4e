package telemetry

import (
	"net"
	"net/http"
)

// localOnly rejects requests that a page from another site makes through a browser on this machine. Such a page can
// reach a server on loopback. It can't read the responses, but it can start profiles. With DNS rebinding, under a host
// name that resolves to this machine, it could also read them.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case onLoopback(r) && !isThisMachine(r.Host):
			http.Error(w, "the debug pages are available under localhost or 127.0.0.1, not under another name", http.StatusForbidden)
		case isCrossSite(r) && (r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Dest") != "document"):
			http.Error(w, "a page of another site may link to the timeline, but not request anything else", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isCrossSite reports whether a browser makes the request on behalf of another page. Pages from other ports of this
// machine count as other pages too: for a browser they are on the same site, but have a different origin.
func isCrossSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // not a browser, an address that the user entered, or our own page
		return false
	}
	return true
}

// onLoopback reports whether the request arrived at a loopback address.
func onLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// isThisMachine reports whether a request's host is a name of this machine that no other site can use.
func isThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(host) != nil
}
