package telemetry

import (
	"net"
	"net/http"
)

// onlyMeant lets those requests through that somebody on this machine means. A browser here may have a page from
// elsewhere open, and that page can reach a server on loopback as well: it cannot read the answers but can start profiles, and
// under a name of its own that leads here (DNS rebinding) it could read them too.
func onlyMeant(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case onLoopback(r) && !isThisMachine(r.Host):
			http.Error(w, "the debug pages are here under localhost or 127.0.0.1, not under another name", http.StatusForbidden)
		case isAnothers(r) && (r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Dest") != "document"):
			http.Error(w, "another site's page may link to the timeline, and no more", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isAnothers says whether a browser makes the request for a page that is not ours. Pages from other ports of this machine are
// others' too: to a browser they are of the same site, though not of the same origin.
func isAnothers(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin": // no browser, an address that somebody entered, our own page
		return false
	}
	return true
}

// onLoopback says whether the request came to an address that only this machine reaches.
func onLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// isThisMachine says whether a request's host names this machine in a way that nobody else can claim.
func isThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(host) != nil
}
