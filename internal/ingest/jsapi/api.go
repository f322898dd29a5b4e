package jsapi

import (
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// API identifies a JetStream API by its subjects. The zero value is the API of the connected server. At most one field may be set.
type API struct {
	Domain string // JetStream domain, often reached over a leaf node; the subjects begin with $JS.<domain>.API
	Prefix string // prefix of the subjects under which an account imports another account's API
}

// New returns a JetStream client on a connection that the caller still owns. All packages create their clients with New.
func (a API) New(nc *nats.Conn, options ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
	switch {
	case a.Domain != "":
		return jetstream.NewWithDomain(nc, a.Domain, options...)
	case a.Prefix != "":
		return jetstream.NewWithAPIPrefix(nc, a.Prefix, options...)
	}
	return jetstream.New(nc, options...)
}

// Subject returns the subject of an API request. request is the part after the prefix, for example STREAM.INFO.INGEST.
func (a API) Subject(request string) string {
	switch {
	case a.Domain != "":
		return "$JS." + a.Domain + ".API." + request
	case a.Prefix != "":
		return strings.TrimSuffix(a.Prefix, ".") + "." + request
	}
	return jetstream.DefaultAPIPrefix + request
}

// Of returns the API that a client uses.
func Of(js jetstream.JetStream) API {
	o := js.Options()
	return API{Domain: o.Domain, Prefix: o.APIPrefix}
}
