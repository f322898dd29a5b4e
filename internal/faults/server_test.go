package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/internal/ingest/natstest"
)

// server is a nats-server that keeps its address and its files across restarts.
type server struct {
	*process
	name, addr, config string
	dir                string
	starts             int
}

// serverConfig is the configuration of a server: JetStream with file storage, and the settings of a cluster.
const serverConfig = `server_name: %s
listen: "%s"
jetstream { store_dir: "%s" }
`

const clusterConfig = `cluster { name: faults, listen: "%s", routes: [%s] }
`

// newServers writes the configurations of n servers. Several servers form a cluster.
func newServers(t testing.TB, dir string, n int) []*server {
	t.Helper()
	routes := make([]string, n)
	for i := range routes {
		routes[i] = holdPort(t)
	}
	servers := make([]*server, n)
	for i := range servers {
		s := &server{name: fmt.Sprintf("s%d", i+1), addr: holdPort(t), dir: dir}
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
	r.Rig = natstest.At(r.t, strings.Join(urls, ","), nats.RetryOnFailedConnect(true))
	r.until("JetStream answers", r.jetStreamAnswers)
}

func (r *rig) jetStreamAnswers() bool {
	ctx, cancel := r.shortly()
	defer cancel()
	_, err := r.JS.AccountInfo(ctx)
	return err == nil
}

// connect opens a connection that waits for servers that are down.
func (r *rig) connect() *nats.Conn {
	r.t.Helper()
	return r.Connect(r.URL, nats.RetryOnFailedConnect(true))
}

func (r *rig) proxy() *natstest.Proxy {
	r.t.Helper()
	return natstest.NewProxy(r.t, "127.0.0.1:0", r.servers[0].addr)
}
