package jsapi

import (
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// API says under which subjects the JetStream API answers. The zero value is the API of the server that a connection is to. At most one
// field is set.
type API struct {
	Domain string // a JetStream domain, which a leaf node may reach: $JS.<domain>.API
	Prefix string // the subjects under which an account imports the API of another one
}

// New returns a JetStream client on a connection that the caller still owns. No other package makes one.
func (a API) New(nc *nats.Conn, options ...jetstream.JetStreamOpt) (jetstream.JetStream, error) {
	switch {
	case a.Domain != "":
		return jetstream.NewWithDomain(nc, a.Domain, options...)
	case a.Prefix != "":
		return jetstream.NewWithAPIPrefix(nc, a.Prefix, options...)
	}
	return jetstream.New(nc, options...)
}

// Subject returns the subject of an API request, given its part after the prefix, like STREAM.INFO.INGEST.
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
