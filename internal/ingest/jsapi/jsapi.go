// Package jsapi creates clients for a JetStream API, which may be in a domain or under a prefix. It also makes the API requests
// that the client library lacks, or whose responses the library shortens. Start reading at API.
package jsapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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

// Request makes an API request and decodes its answer. An error response of the server is returned as *jetstream.APIError. If ctx has no
// deadline, the client's default timeout bounds the request, as in the client library.
func Request(ctx context.Context, js jetstream.JetStream, request string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, js.Options().DefaultTimeout)
		defer cancel()
	}
	msg, err := js.Conn().RequestWithContext(ctx, Of(js).Subject(request), data)
	if err != nil {
		return err
	}
	var refused struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &refused); err != nil {
		return err
	}
	if refused.Error != nil {
		return refused.Error
	}
	return json.Unmarshal(msg.Data, answer)
}

// Next returns a stream's first message at or after sequence from with a subject that matches filter. It returns nil if no message
// matches. See get.
func Next(ctx context.Context, js jetstream.JetStream, stream string, from uint64, filter string) (*jetstream.RawStreamMsg, error) {
	return get(ctx, js, stream, map[string]any{"seq": from, "next_by_subj": filter})
}

// Last returns a stream's last message with the given subject. It returns nil if there is no such message. See get.
func Last(ctx context.Context, js jetstream.JetStream, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return get(ctx, js, stream, map[string]any{"last_by_subj": subject})
}

// get reads a message from the leader of the stream. Unlike the client library, get also returns a message whose headers can't be
// parsed, with the value Unreadable as its headers.
func get(ctx context.Context, js jetstream.JetStream, stream string, which map[string]any) (*jetstream.RawStreamMsg, error) {
	var answer struct {
		Message struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
		} `json:"message"`
	}
	err := Request(ctx, js, "STREAM.MSG.GET."+stream, which, &answer)
	if refused := (*jetstream.APIError)(nil); errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := answer.Message
	return &jetstream.RawStreamMsg{Subject: m.Subject, Sequence: m.Sequence, Header: decode(m.Header), Data: m.Data, Time: m.Time}, nil
}

func decode(data []byte) nats.Header {
	if len(data) == 0 {
		return nil
	}
	h, err := nats.DecodeHeadersMsg(data)
	if err != nil {
		return Unreadable
	}
	return h
}

// Unreadable replaces headers that can't be parsed. Its only key is the empty name, which no parsed header has. It must not be
// modified.
var Unreadable = nats.Header{"": nil}

// IsUnreadable reports whether headers are Unreadable.
func IsUnreadable(h nats.Header) bool {
	_, unreadable := h[""]
	return unreadable
}

// Consumers returns the state of all consumers of a stream, and the names of the consumers whose state isn't available now. The
// server hides the consumers of mirrors, and of streams that source from this one, so Consumers doesn't return them.
func Consumers(ctx context.Context, js jetstream.JetStream, stream string) (all []*jetstream.ConsumerInfo, unknown []string, err error) {
	for {
		var page struct {
			Total     int                       `json:"total"`
			Consumers []*jetstream.ConsumerInfo `json:"consumers"`
			Missing   []string                  `json:"missing"`
		}
		read := len(all) + len(unknown)
		if err := Request(ctx, js, "CONSUMER.LIST."+stream, map[string]any{"offset": read}, &page); err != nil {
			return nil, nil, fmt.Errorf("list the consumers of stream %q: %w", stream, err)
		}
		// The list also has an entry without a name for each consumer whose servers are offline.
		known := slices.DeleteFunc(page.Consumers, func(c *jetstream.ConsumerInfo) bool { return c.Name == "" || slices.Contains(page.Missing, c.Name) })
		all, unknown = append(all, known...), append(unknown, page.Missing...)
		switch now := len(all) + len(unknown); {
		case now >= page.Total:
			return all, unknown, nil
		case now == read:
			return nil, nil, fmt.Errorf("list the consumers of stream %q: the server lists only %d of %d", stream, now, page.Total)
		}
	}
}

// Filters returns a consumer's filters. It returns the filter > if the consumer gets every message of the stream.
func Filters(c jetstream.ConsumerConfig) []string {
	if len(c.FilterSubjects) > 0 {
		return c.FilterSubjects
	}
	return []string{cmp.Or(c.FilterSubject, ">")}
}

// Release has the first two numbers of a nats-server version.
type Release struct{ Major, Minor int }

// String returns the release in the form "2.14".
func (r Release) String() string { return fmt.Sprintf("%d.%d", r.Major, r.Minor) }

// In reports whether a server with the given version, for example 2.14.0-RC.1, has the features of the release. It returns false
// if it can't parse version.
func (r Release) In(version string) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, err := strconv.Atoi(first)
	if err != nil {
		return false
	}
	minor, err := strconv.Atoi(second)
	return err == nil && (major > r.Major || major == r.Major && minor >= r.Minor)
}
