package natstest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

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
