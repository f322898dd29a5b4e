package natsconn

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// outage logs the loss of a connection, and the reason why reconnects fail. The client library reports only some failures. For
// example, it doesn't report an expired server certificate.
type outage struct {
	log     *slog.Logger
	advice  func(error) string // returns advice on an error
	watched atomic.Bool        // whether a goroutine runs watch

	mu   sync.Mutex
	last error // error of the latest attempt that the client reported
}

const (
	firstWord = time.Second      // time from the loss until the first log line of watch
	everyWord = 30 * time.Second // time between further log lines
)

// began handles the loss of a connection.
func (o *outage) began(nc *nats.Conn, err error) {
	if nc.IsClosed() { // this process closed it
		return
	}
	o.log.Warn("disconnected from NATS, reconnecting", "error", err)
	if o.watched.CompareAndSwap(false, true) {
		o.note(nil) // forget the error of an earlier outage
		go o.watch(nc)
	}
}

// failed handles an attempt to reconnect that reached no server.
func (o *outage) failed(_ *nats.Conn, err error) { o.note(err) }

// note records the error of an attempt for watch, because there are several attempts per second.
func (o *outage) note(err error) {
	o.mu.Lock()
	o.last = err
	o.mu.Unlock()
}

// watch logs the reason for the outage at intervals until the connection is up or closed.
func (o *outage) watch(nc *nats.Conn) {
	since, spoken := time.Now(), time.Time{}
	tick := time.NewTicker(firstWord)
	defer tick.Stop()
	for now := range tick.C {
		if over(nc) {
			o.watched.Store(false)
			// An outage that began before this Store has started no watch.
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

func over(nc *nats.Conn) bool { return nc.IsConnected() || nc.IsClosed() }

func (o *outage) say(nc *nats.Conn, lasted time.Duration) {
	o.mu.Lock()
	err := o.last
	o.mu.Unlock()
	if e := nc.LastError(); e != nil {
		err = e // a server was reached, but the handshake failed
	}
	if err == nil {
		err = nats.ErrNoServers
	}
	err = withoutAddress(err)
	o.log.Warn("not connected to NATS, trying again", "for", lasted.Round(time.Second).String(), "error", err, "advice", o.advice(err))
}
