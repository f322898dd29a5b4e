package pull

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// ask is a request that the server has.
type ask struct {
	number   uint64 // 0: there is none
	messages int    // what it asked for
	bytes    int
	until    time.Time // when it is over at the latest, said or not
}

// wire is a request as the server reads it.
type wire struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes,omitempty"`
	Expires   time.Duration `json:"expires,omitempty"`
	NoWait    bool          `json:"no_wait,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	Group     string        `json:"group,omitempty"`
	Pin       string        `json:"id,omitempty"`
}

// ask has the server have as many requests as it is to have. What they brought may be on its way still, since a server with
// replicas says the end of a request before it sends what waits for the others: so that counts too.
func (p *Pull) ask() error {
	if p.leaving.Load() {
		return nil
	}
	if p.left <= 0 || p.room <= 0 {
		// They have brought all they were to. Of one whose bytes come out even the server says nothing.
		p.forget()
	}
	none := p.live == [outstanding]ask{}
	alone := p.r.Group != "" && p.Pin() == "" // see pin.go
	for i := range p.live {
		if p.live[i].number != 0 || alone && !none {
			continue
		}
		// The limit may have grown. A request that waits with a smaller one needs no renewal: the server ends it as soon
		// as there is a message that it doesn't fit.
		messages, full := p.r.Messages, p.r.bytes()
		bytes := full
		if none && i == 0 && !alone {
			// The server serves requests in turns. The first of two is a half one, so that they do not end together.
			messages, bytes = (messages+1)/2, (bytes+1)/2
		}
		if p.left+messages > outstanding*p.r.Messages || p.room+bytes > outstanding*full {
			return nil
		}
		switch err := p.send(i, messages, bytes); {
		case errors.Is(err, nats.ErrReconnectBufExceeded):
			return nil // there is no connection; it is asked for again when there is
		case err != nil:
			return err
		}
		if alone {
			return nil
		}
	}
	return nil
}

// send makes a request for so many messages and bytes.
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
		p.unused = p.unused || w.Pin == "" // nothing can come on it
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
		return fmt.Errorf("ask the consumer for messages: %w", err)
	}
	return nil
}

// over notes the end of a request that could have brought so many messages and bytes more.
func (p *Pull) over(number uint64, messages, bytes int) {
	for i := range p.live {
		if p.live[i].number == number {
			p.live[i] = ask{}
			p.left -= messages
			p.room -= bytes
		}
	}
}

// came notes a message, which belongs to any of the requests.
func (p *Pull) came(raw *nats.Msg) {
	p.left--
	p.room -= raw.Size()
	if p.r.Group != "" {
		p.room += p.added(raw)
	}
}

// request is what a request asked for that the server has; the zero value where it is over.
func (p *Pull) request(number uint64) ask {
	for _, a := range p.live {
		if a.number == number {
			return a
		}
	}
	return ask{}
}

// expire takes the requests for over when the server should have told the end of one long since.
func (p *Pull) expire(now time.Time) {
	for _, a := range p.live {
		if a.number != 0 && now.After(a.until) {
			p.forget()
			return
		}
	}
}

// forget takes all requests for over.
func (p *Pull) forget() {
	p.live, p.left, p.room, p.renew = [outstanding]ask{}, 0, 0, false
}

// Keep tells the server that this client is still there, while it has its turn in a priority group and takes nothing for a
// while. It brings no message: it asks for one smaller than any.
func (p *Pull) Keep() error {
	pin := p.Pin()
	if pin == "" {
		return nil
	}
	return request(p.nc, p.subject, p.nc.NewInbox(), wire{Batch: 1, MaxBytes: 1, Expires: p.r.Expires, Group: p.r.Group, Pin: pin})
}
