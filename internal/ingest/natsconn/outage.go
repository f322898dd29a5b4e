package natsconn

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
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
	var finding *fileFinding
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
		o.note(nil) // what an outage before was for
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
	since, spoken := time.Now(), time.Time{}
	tick := time.NewTicker(firstWord)
	defer tick.Stop()
	for now := range tick.C {
		if over(nc) {
			o.watched.Store(false)
			// One that began just before that started no watch, for there was this.
			if over(nc) || !o.watched.CompareAndSwap(false, true) {
				return
			}
			since, spoken = now, time.Time{}
		}
		if now.Sub(spoken) >= everyWord {
			o.say(nc, now.Sub(since))
			spoken = now
		}
	}
}

// over says whether there is a connection, or there will be none.
func over(nc *nats.Conn) bool { return nc.IsConnected() || nc.IsClosed() }

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
