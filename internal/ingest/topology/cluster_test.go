package topology

import (
	"fmt"
	"testing"

	"millrace/internal/ingest/natstest"
)

// TestProvisionReplicatesInACluster shows that a cluster of three servers keeps three replicas and a smaller one
// keeps one. A configured number takes precedence.
func TestProvisionReplicatesInACluster(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers, replicas, want int
	}{{3, 0, 3}, {3, 1, 1}, {2, 0, 1}} {
		t.Run(fmt.Sprintf("%d servers, %d replicas", c.servers, c.replicas), func(t *testing.T) {
			t.Parallel()
			r := withTopology(natstest.At(t, natstest.Cluster(t, c.servers)))
			r.exclusive(2)
			r.topology.Kept.Replicas = c.replicas
			r.provision()
			for _, name := range []string{"INGEST", "RESULTS", "RESULTS_DEADLETTER"} {
				if got := r.StreamConfig(name).Replicas; got != c.want {
					t.Errorf("%s has %d replicas, want %d", name, got, c.want)
				}
			}
			way := map[int]Commits{1: FastCommits, 3: AtomicCommits}[c.want]
			if got, found, _ := r.topology.CommitsOf(r.StreamConfig("RESULTS"), r.NC.ConnectedServerVersion()); got != way {
				t.Errorf("commits of the result stream are %d (%s), want %d", got, found, way)
			}
		})
	}
}
