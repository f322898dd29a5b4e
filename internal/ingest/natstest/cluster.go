package natstest

import (
	"fmt"
	"math/rand/v2"
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

// Ports below the ephemeral range: another socket might be given an ephemeral port before the server listens on it.
const (
	firstPort = 10000
	portCount = 20000
)

// freePorts returns ports that nobody listens on.
func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	Until(t, "ports are free", func() bool {
		port := firstPort + rand.IntN(portCount)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		defer func() { _ = l.Close() }()
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
		return len(ports) == n
	})
	return ports
}
