package exchange

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/wildcard"
)

// selects reports whether a message is about an input with the subject that the Printer prints.
func (p *Printer) selects(h nats.Header) bool {
	return p.Subject == "" || wildcard.Covers(p.Subject, h.Get(client.HeaderSubject))
}

// mixes reports whether the stream may store outcomes of other inputs under the same subjects as those of the selected ones: the prefix takes the
// place of a subject's first token.
func (p *Printer) mixes() bool {
	wanted, _, _ := strings.Cut(p.Subject, ".")
	return p.Subject != "" && wanted != "*" && wanted != ">" && slices.ContainsFunc(p.Topology.Subjects, func(filter string) bool {
		first, _, _ := strings.Cut(filter, ".")
		return first != wanted
	})
}

// feed opens a feed of the last messages about the selected inputs.
func (p *Printer) feed(ctx context.Context, js jetstream.JetStream, stream string, subjects []string) (*feed, error) {
	most, from := p.most(), uint64(0)
	if p.mixes() && most > 0 && most < math.MaxUint64 {
		var err error
		if from, err = p.lastSelected(ctx, js, stream, subjects); err != nil {
			return nil, err
		}
		most = math.MaxUint64
	}
	return openFeed(ctx, js, stream, subjects, most, from)
}

// lastSelected returns the sequence of the first of the last messages about the selected inputs; 0 if there are no more of them. It reads the
// messages, because the server can't tell these from others.
func (p *Printer) lastSelected(ctx context.Context, js jetstream.JetStream, stream string, subjects []string) (sequence uint64, err error) {
	for back := p.Last; ; back = further(back) {
		f, err := openFeed(ctx, js, stream, subjects, back, 0)
		if err != nil {
			return 0, err
		}
		var last []uint64
		err = f.backlog(ctx, func(m jetstream.Msg) error {
			meta, err := m.Metadata()
			if err == nil && p.selects(m.Headers()) {
				last = append(last, meta.Sequence.Stream)
				last = last[max(len(last)-int(p.Last), 0):]
			}
			return err
		})
		f.close()
		switch {
		case err != nil:
			return 0, err
		case uint64(len(last)) == p.Last:
			return last[0], nil
		case !f.earlier:
			return 0, nil
		}
	}
}
