package natstest

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster starts a cluster of n servers with JetStream, and returns their addresses, separated by commas. The servers end with the test.
func Cluster(t testing.TB, n int) (urls string) {
	t.Helper()
	ports, routes := freePorts(t, n), make([]string, n)
	for i, port := range ports {
		routes[i] = fmt.Sprintf("nats://127.0.0.1:%d", port)
	}
	var servers []*server.Server
	var addresses []string
	for i, port := range ports {
		s := Plain(t, server.Options{
			ServerName: fmt.Sprint("n", i), JetStream: true, StoreDir: t.TempDir(),
			Cluster: server.ClusterOpts{Name: "east", Host: "127.0.0.1", Port: port}, Routes: server.RoutesFromStr(strings.Join(routes, ",")),
		})
		servers, addresses = append(servers, s), append(addresses, s.ClientURL())
	}
	Until(t, "the cluster has a leader and all servers", func() bool {
		return slices.ContainsFunc(servers, func(s *server.Server) bool { return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == n })
	})
	return strings.Join(addresses, ",")
}

// freePorts returns ports that nobody listens on.
func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // after all are chosen, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
