package natstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Rig is a server with JetStream and a client for one test. A package whose tests need more tools embeds a Rig in its own type.
//
// Each test has its own server, so tests can use the same stream names, and stop or restrict their server. A server costs 7 ms of
// processor time per test, and an account on a shared server would cost 5 ms. An error in a method fails the test.
type Rig struct {
	testing.TB
	URL string // comma-separated addresses for clients
	Dir string // directory of the server's files; empty for a server that the caller started
	NC  *nats.Conn
	JS  jetstream.JetStream
	Log *Log

	options server.Options
	server  *server.Server // nil for a server that the caller started
}

// MaxPayload is the size in bytes of the largest message that the server of a Rig accepts, including headers.
const MaxPayload = 4 << 20

// New starts a server and connects to it. The server stops at the end of the test. The functions in changes change the server's
// options.
func New(t testing.TB, changes ...func(*server.Options)) *Rig {
	t.Helper()
	r := &Rig{TB: t, Dir: t.TempDir()}
	r.options = server.Options{JetStream: true, StoreDir: r.Dir, MaxPayload: MaxPayload}
	for _, change := range changes {
		change(&r.options)
	}
	r.server = Plain(t, r.options)
	r.options.Port = r.server.Addr().(*net.TCPAddr).Port
	r.open(r.server.ClientURL())
	return r
}

// At connects to servers that the caller has started. url has their comma-separated addresses.
func At(t testing.TB, url string, options ...nats.Option) *Rig {
	t.Helper()
	r := &Rig{TB: t}
	r.open(url, options...)
	return r
}

func (r *Rig) open(url string, options ...nats.Option) {
	r.Helper()
	r.URL, r.Log = url, NewLog(r.TB)
	r.NC = r.Connect(r.URL, options...)
	r.JS = r.JetStream(r.NC)
}

// Stop stops the server and keeps its files.
func (r *Rig) Stop() {
	r.server.Shutdown()
	r.server.WaitForShutdown()
}

// Restart stops the server if it still runs, and starts another one with the same files and address.
func (r *Rig) Restart() {
	r.Helper()
	r.Stop()
	r.server = Plain(r.TB, r.options)
}

// Reload changes options of the server while it runs.
func (r *Rig) Reload(change func(*server.Options)) {
	r.Helper()
	change(&r.options)
	OK(r, r.server.ReloadOptions(onLoopback(r.options)))
}

// Ctx returns a context that is done after Patience, or at the end of the test.
func (r *Rig) Ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	r.Cleanup(cancel)
	return ctx
}

// Until calls the function Until with r's test.
func (r *Rig) Until(what string, cond func() bool) {
	r.Helper()
	Until(r.TB, what, cond)
}

// Connect opens a connection to url that reconnects quickly and without a limit. The end of the test closes the connection.
// Asynchronous errors are ignored, because tests break connections on purpose.
func (r *Rig) Connect(url string, options ...nats.Option) *nats.Conn {
	r.Helper()
	standard := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(10 * time.Millisecond), nats.Timeout(Patience),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	nc := Must(nats.Connect(url, append(standard, options...)...))(r)
	r.Cleanup(nc.Close)
	return nc
}

// JetStream returns a client of JetStream over nc.
func (r *Rig) JetStream(nc *nats.Conn) jetstream.JetStream {
	r.Helper()
	return Must(jetstream.New(nc))(r)
}

// Proxy starts a proxy in front of the server.
func (r *Rig) Proxy() *Proxy {
	r.Helper()
	return NewProxy(r.TB, "127.0.0.1:0", strings.TrimPrefix(r.URL, "nats://"))
}

// window is the maximum number of messages that Publish has in flight. The client refuses more messages while the server is slow.
const window = 2000

// Publish stores the messages that message returns for first to end-1, in this order.
func (r *Rig) Publish(first, end int, message func(i int) *nats.Msg) {
	r.Helper()
	over := time.After(Patience)
	var answers []jetstream.PubAckFuture
	for i := first; i < end; i++ {
		if answers = append(answers, Must(r.JS.PublishMsgAsync(message(i)))(r)); len(answers) < window && i < end-1 {
			continue
		}
		for _, answer := range answers {
			select {
			case <-answer.Ok():
			case err := <-answer.Err():
				r.Fatalf("publishing on %q: %v", answer.Msg().Subject, err)
			case <-over:
				r.Fatalf("publishing did not complete within %v", Patience)
			}
		}
		answers = answers[:0]
	}
}

// Put stores a message, and returns the server's answer.
func (r *Rig) Put(m *nats.Msg) *jetstream.PubAck {
	r.Helper()
	return Must(r.JS.PublishMsg(r.Ctx(), m))(r)
}

// codeNoStore is the server's error code while it still removes the files of a deleted stream with the same name.
const codeNoStore = 10049

// Create creates or changes a stream.
func (r *Rig) Create(c jetstream.StreamConfig) (s jetstream.Stream) {
	r.Helper()
	r.Until("the stream "+c.Name+" is there", func() bool {
		var err error
		s, err = r.JS.CreateOrUpdateStream(r.Ctx(), c)
		var api *jetstream.APIError
		if err != nil && !(errors.As(err, &api) && api.ErrorCode == codeNoStore) {
			r.Fatal(err)
		}
		return err == nil
	})
	return s
}

// Change changes the configuration of a stream, and returns the earlier one.
func (r *Rig) Change(stream string, change func(*jetstream.StreamConfig)) (before jetstream.StreamConfig) {
	r.Helper()
	before = r.StreamConfig(stream)
	after := before
	change(&after)
	r.Create(after)
	return before
}

// Delete deletes a stream.
func (r *Rig) Delete(stream string) {
	r.Helper()
	OK(r, r.JS.DeleteStream(r.Ctx(), stream))
}

// Stream returns a stream whose cached information is current.
func (r *Rig) Stream(name string) jetstream.Stream {
	r.Helper()
	return Must(r.JS.Stream(r.Ctx(), name))(r)
}

// StreamConfig returns the configuration of a stream.
func (r *Rig) StreamConfig(name string) jetstream.StreamConfig {
	r.Helper()
	return r.Stream(name).CachedInfo().Config
}

// Consumer returns a consumer whose cached information is current.
func (r *Rig) Consumer(stream, name string) jetstream.Consumer {
	r.Helper()
	return Must(r.JS.Consumer(r.Ctx(), stream, name))(r)
}

// ConsumerInfo returns the current state of a consumer.
func (r *Rig) ConsumerInfo(stream, name string) *jetstream.ConsumerInfo {
	r.Helper()
	return r.Consumer(stream, name).CachedInfo()
}

// Consumers returns the names of a stream's consumers in order.
func (r *Rig) Consumers(stream string) (names []string) {
	r.Helper()
	list := r.Stream(stream).ConsumerNames(r.Ctx())
	for name := range list.Name() {
		names = append(names, name)
	}
	OK(r, list.Err())
	slices.Sort(names)
	return names
}

// AwaitDelivered waits until a stream's consumers have at least n unacknowledged deliveries, and nc has received them. A client's
// count of messages is no substitute, because it includes responses to requests.
func (r *Rig) AwaitDelivered(stream string, n int, nc *nats.Conn) {
	r.Helper()
	var consumers []string
	r.Until("the inputs are delivered", func() bool {
		delivered := 0
		consumers = consumers[:0]
		for info := range r.Stream(stream).ListConsumers(r.Ctx()).Info() {
			delivered += info.NumAckPending
			consumers = append(consumers, info.Name)
		}
		return delivered >= n
	})
	// The server refuses this request. Its error response arrives after the counted deliveries.
	for _, name := range consumers {
		Must(nc.Request("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+name, []byte("{"), Patience))(r)
	}
}

// Stored returns the messages of a stream in the order of their sequences.
func (r *Rig) Stored(stream string) (all []*jetstream.RawStreamMsg) {
	r.Helper()
	s := r.Stream(stream)
	state := s.CachedInfo().State
	for i := state.FirstSeq; state.Msgs > 0 && i <= state.LastSeq; i++ {
		if m, err := s.GetMsg(r.Ctx(), i); !errors.Is(err, jetstream.ErrMsgNotFound) { // otherwise the message is removed
			all = append(all, Must(m, err)(r))
		}
	}
	return all
}

// Plain starts a single server with the options o. If o has no port, the operating system selects one. JetStream runs only if o
// enables it. The server stops at the end of the test.
func Plain(t testing.TB, o server.Options) *server.Server {
	t.Helper()
	s := Must(server.NewServer(onLoopback(o)))(t)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(Patience) {
		t.Fatal("the server did not come up")
	}
	return s
}

// onLoopback returns o with the common options of all servers.
func onLoopback(o server.Options) *server.Options {
	o.Host, o.NoLog, o.NoSigs = "127.0.0.1", true, true
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	return &o
}

// Cluster starts a cluster of n servers with JetStream, and returns their comma-separated addresses. The servers stop at the end of
// the test.
//
// The operating system selects all ports, so the first server can't have routes to the other servers. The other servers connect to
// the first server, which introduces them to each other. But a server uses the number of its routes as the size of the cluster. So
// each server has n routes, most of which are unusable.
func Cluster(t testing.TB, n int) (urls string) {
	t.Helper()
	var servers []*server.Server
	var addresses []string
	for i := range n {
		routes := make([]*url.URL, n)
		for k := range routes {
			routes[k] = &url.URL{Scheme: "nats-route", Host: "127.0.0.1:0"}
		}
		if i > 0 {
			routes[0].Host = servers[0].ClusterAddr().String()
		}
		s := Plain(t, server.Options{
			ServerName: fmt.Sprint("n", i), JetStream: true, StoreDir: t.TempDir(),
			Cluster: server.ClusterOpts{Name: "east", Host: "127.0.0.1", Port: server.RANDOM_PORT}, Routes: routes,
		})
		servers, addresses = append(servers, s), append(addresses, s.ClientURL())
	}
	Until(t, "the cluster has a leader and all servers", func() bool {
		return slices.ContainsFunc(servers, func(s *server.Server) bool { return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == n })
	})
	return strings.Join(addresses, ",")
}
