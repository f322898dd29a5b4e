package ingest

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/credentials"
)

// outage is what the log says while a connection is lost: that it is, and then why it does not come back. The client
// itself tells of some failures and not of others, such as a server's certificate that has expired.
type outage struct {
	log     *slog.Logger
	explain func(error) string // what to do
	watched atomic.Bool        // somebody waits for its end

	mu   sync.Mutex
	last error // of the latest attempt that the client told of
}

const (
	firstWord = time.Second      // until the first word on why a connection is not back
	everyWord = 30 * time.Second // until each that follows
)

// refused says whether err is a server's word on who the worker is, or a file's that says so.
func refused(err error) bool {
	var finding *credentials.Finding
	return errors.As(err, &finding) || errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked) || errors.Is(err, nats.ErrAccountAuthExpired)
}

// began is the client's word that a connection is lost.
func (o *outage) began(nc *nats.Conn, err error) {
	if nc.IsClosed() { // by us
		return
	}
	o.log.Warn("disconnected from NATS, reconnecting", "error", err)
	if o.watched.CompareAndSwap(false, true) {
		go o.watch(nc)
	}
}

// failed is the client's word that an attempt reached no server.
func (o *outage) failed(_ *nats.Conn, err error) { o.note(err) }

// note keeps why an attempt failed for the watch to say: there are several a second.
func (o *outage) note(err error) {
	o.mu.Lock()
	o.last = err
	o.mu.Unlock()
}

// watch says every now and then why there is no connection, until there is.
func (o *outage) watch(nc *nats.Conn) {
	defer o.watched.Store(false)
	since, spoken := time.Now(), time.Time{}
	tick := time.NewTicker(firstWord)
	defer tick.Stop()
	for now := range tick.C {
		if nc.IsConnected() || nc.IsClosed() {
			return
		}
		if now.Sub(spoken) >= everyWord {
			o.say(nc, now.Sub(since))
			spoken = now
		}
	}
}

func (o *outage) say(nc *nats.Conn, lasted time.Duration) {
	o.mu.Lock()
	err := o.last
	o.mu.Unlock()
	if e := nc.LastError(); e != nil {
		err = e // where a server was reached and something did not suit
	}
	if err == nil {
		err = nats.ErrNoServers
	}
	err = withoutAddress(err)
	o.log.Warn("not connected to NATS, trying again", "for", lasted.Round(time.Second).String(), "error", err, "advice", o.explain(err))
}
