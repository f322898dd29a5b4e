package pull

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// ask is a request that is pending at the server.
type ask struct {
	number   uint64 // 0: there is none
	messages int    // number of messages requested
	bytes    int
	until    time.Time // the latest time at which it ends, reported or not
}

// wire is the JSON form of a request.
type wire struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires,omitempty"`
	NoWait    bool          `json:"no_wait,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	Group     string        `json:"group,omitempty"`
	Pin       string        `json:"id,omitempty"`
}

// ask sends requests until the intended number is pending at the server. Messages of earlier requests may still be in
// transit, because a server with replicas reports the end of a request before it sends messages that wait for other
// servers. So those count too.
func (p *Pull) ask() error {
	if p.leaving.Load() {
		return nil
	}
	if p.left <= 0 || p.room <= 0 {
		// The requests have delivered everything. If a request's bytes are used up exactly, the server doesn't report
		// its end.
		p.forget()
	}
	none := p.live == [outstanding]ask{}
	alone := p.r.Group != "" && p.Pin() == "" // see pin.go
	for i := range p.live {
		if p.live[i].number != 0 || alone && !none {
			continue
		}
		// The limit may have grown. A pending request with a smaller one needs no renewal: the server ends it when a
		// message doesn't fit.
		messages, full := p.r.Messages, p.r.bytes()
		bytes := full
		if none && i == 0 && !alone {
			// The server serves requests in turns. The first of two has half the size, so that they don't end at the
			// same time.
			messages, bytes = (messages+1)/2, (bytes+1)/2
		}
		if p.left+messages > outstanding*p.r.Messages || p.room+bytes > outstanding*full {
			return nil
		}
		switch err := p.send(i, messages, bytes); {
		case errors.Is(err, nats.ErrReconnectBufExceeded):
			return nil // there is no connection; ask is called again when there is one
		case err != nil:
			return err
		}
		if alone {
			return nil
		}
	}
	return nil
}

// send sends a request for that many messages and bytes.
func (p *Pull) send(i, messages, bytes int) error {
	p.asked++
	w := wire{
		Batch: messages, MaxBytes: bytes, Expires: p.r.Expires, Heartbeat: p.r.Heartbeat, Group: p.r.Group, Pin: p.Pin(),
	}
	to, err := p.to(w.Pin)
	if err != nil {
		return err
	}
	if err := request(p.nc, p.subject, to.prefix+strconv.FormatUint(p.asked, 10), w); err != nil {
		p.unused = p.unused || w.Pin == "" // no message can arrive on it
		return err
	}
	p.live[i] = ask{number: p.asked, messages: messages, bytes: bytes, until: time.Now().Add(p.r.Expires + p.r.Heartbeat)}
	p.left += messages
	p.room += bytes
	return nil
}

func request(nc *nats.Conn, subject, reply string, w wire) error {
	text, err := json.Marshal(w)
	if err == nil {
		err = nc.PublishRequest(subject, reply, text)
	}
	if err != nil {
		return fmt.Errorf("request messages from the consumer: %w", err)
	}
	return nil
}

// over records the end of a request that could have delivered that many more messages and bytes.
func (p *Pull) over(number uint64, messages, bytes int) {
	for i := range p.live {
		if p.live[i].number == number {
			p.live[i] = ask{}
			p.left -= messages
			p.room -= bytes
		}
	}
}

// came records a message, which may belong to any of the requests.
func (p *Pull) came(raw *nats.Msg) {
	p.left--
	p.room -= raw.Size()
	if p.r.Group != "" {
		p.room += p.added(raw)
	}
}

// request returns the pending request with that number, or the zero value if it has ended.
func (p *Pull) request(number uint64) ask {
	for _, a := range p.live {
		if a.number == number {
			return a
		}
	}
	return ask{}
}

// expire treats requests as ended if the server should have reported their end long ago.
func (p *Pull) expire(now time.Time) {
	for _, a := range p.live {
		if a.number != 0 && now.After(a.until) {
			p.forget()
			return
		}
	}
}

// forget treats all requests as ended.
func (p *Pull) forget() {
	p.live, p.left, p.room, p.renew = [outstanding]ask{}, 0, 0, false
}

// Keep tells the server that this client still wants its turn in a priority group, although it takes no messages for
// a while. It delivers no message, because it requests fewer bytes than any message has.
func (p *Pull) Keep() error {
	pin := p.Pin()
	if pin == "" {
		return nil
	}
	return request(p.nc, p.subject, p.nc.NewInbox(), wire{Batch: 1, MaxBytes: 1, Expires: p.r.Expires, Group: p.r.Group, Pin: pin})
}
