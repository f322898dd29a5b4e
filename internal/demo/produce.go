package demo

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/ingest/jsapi"
)

// HeaderDocument is the header that carries a document's number through the worker to the checker.
const HeaderDocument = "Demo-Document"

// languages lists the last tokens of the input subjects. The subjects of successive documents differ.
var languages = []string{"en", "de", "fr", "zh"}

// produceWindow is the maximum number of documents that are published but not confirmed.
const produceWindow = 512

// producer publishes documents as fast as the server accepts them.
type producer struct {
	nc       *nats.Conn
	docs     *source
	encoding compression.Encoding
	payloads int
	prefixes []string // first tokens of the input subjects

	bytes atomic.Int64 // total size of the documents
	wire  atomic.Int64 // total size of the documents after compression
}

func (p *producer) run(ctx context.Context) error {
	failed := make(chan error, 1)
	js, err := jsapi.API{}.New(p.nc,
		jetstream.WithPublishAsyncMaxPending(produceWindow),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			select {
			case failed <- fmt.Errorf("document %s was not stored: %w", m.Header.Get(HeaderDocument), err):
			default:
			}
		}))
	if err != nil {
		return err
	}
	var compressor compression.Compressor
	for i := range p.payloads {
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		body, header := p.docs.Append(nil, i), nats.Header{HeaderDocument: {strconv.Itoa(i)}}
		p.bytes.Add(int64(len(body)))
		if p.encoding != compression.None {
			body = compressor.Append(nil, p.encoding, body)
			header.Set(client.HeaderContentEncoding, p.encoding.ContentEncoding())
		}
		_, err := js.PublishMsgAsync(&nats.Msg{
			Subject: p.prefixes[i%len(p.prefixes)] + ".docs." + languages[i/len(p.prefixes)%len(languages)],
			Data:    body,
			Header:  header,
		}, jetstream.WithStallWait(publishPatience))
		if err != nil {
			return fmt.Errorf("publish document %d: %w", i, err)
		}
		p.wire.Add(int64(len(body)))
	}
	select {
	case <-js.PublishAsyncComplete():
	case err := <-failed:
		return err
	case <-time.After(publishPatience):
		return fmt.Errorf("the server did not confirm the last documents within %v", publishPatience)
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// publishPatience is the maximum time to wait for the server's confirmations while the window is full, and after the
// last document.
const publishPatience = time.Minute
