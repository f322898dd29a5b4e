package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// server is a nats-server that keeps its address and its files across restarts.
type server struct {
	*process
	name, addr, config string
	dir                string
	starts             int
}

// serverConfig is the configuration of servers: JetStream with file storage, and the settings of a cluster.
const serverConfig = `server_name: %s
listen: "%s"
jetstream { store_dir: "%s" }
`

const clusterConfig = `cluster { name: faults, listen: "%s", routes: [%s] }
`

// newServers writes the configurations of n servers. If n is more than one, they form a cluster.
func newServers(t testing.TB, dir string, n int) []*server {
	t.Helper()
	routes := make([]string, n)
	for i := range routes {
		routes[i] = freePort(t)
	}
	servers := make([]*server, n)
	for i := range servers {
		s := &server{name: fmt.Sprintf("s%d", i+1), addr: freePort(t), dir: dir}
		s.config = filepath.Join(dir, s.name+".conf")
		text := fmt.Sprintf(serverConfig, s.name, s.addr, filepath.Join(dir, s.name))
		if n > 1 {
			text += fmt.Sprintf(clusterConfig, routes[i], `"nats://`+strings.Join(routes, `", "nats://`)+`"`)
		}
		if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		servers[i] = s
	}
	return servers
}

// start starts or restarts the server.
func (s *server) start(t testing.TB) {
	t.Helper()
	s.starts++
	s.process = start(t, s.dir, fmt.Sprintf("%s-%d", s.name, s.starts), serverBinary, os.Environ(), "-c", s.config)
}

// serve starts n servers and connects to them.
func (r *rig) serve(n int) {
	r.t.Helper()
	r.servers = newServers(r.t, r.dir, n)
	urls := make([]string, n)
	for i, s := range r.servers {
		s.start(r.t)
		urls[i] = "nats://" + s.addr
	}
	r.url = strings.Join(urls, ",")
	r.nc = r.connect()
	var err error
	if r.js, err = jetstream.New(r.nc); err != nil {
		r.t.Fatal(err)
	}
	r.until("JetStream answers", r.jetStreamAnswers)
}

func (r *rig) jetStreamAnswers() bool {
	ctx, cancel := r.shortly()
	defer cancel()
	_, err := r.js.AccountInfo(ctx)
	return err == nil
}

// connect opens a connection that waits for its servers and reconnects to them.
func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	nc, err := nats.Connect(r.url, nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

// streamConfig returns the current configuration of a stream.
func (r *rig) streamConfig(name string) jetstream.StreamConfig {
	r.t.Helper()
	ctx, cancel := r.patiently()
	defer cancel()
	s, err := r.js.Stream(ctx, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func (r *rig) createStream(c jetstream.StreamConfig) {
	r.t.Helper()
	ctx, cancel := r.patiently()
	defer cancel()
	if _, err := r.js.CreateStream(ctx, c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) updateStream(c jetstream.StreamConfig) {
	r.t.Helper()
	ctx, cancel := r.patiently()
	defer cancel()
	if _, err := r.js.UpdateStream(ctx, c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) deleteStream(name string) {
	r.t.Helper()
	ctx, cancel := r.patiently()
	defer cancel()
	if err := r.js.DeleteStream(ctx, name); err != nil {
		r.t.Fatal(err)
	}
}
