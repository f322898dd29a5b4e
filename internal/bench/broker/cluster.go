package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"millrace/internal/ingest/embedded"
)

const (
	// clusterServers is the number of servers of a cluster, and of replicas of each stream.
	clusterServers = 3

	// clusterTimeout bounds the time until a new cluster creates its first stream.
	clusterTimeout = time.Minute

	// clusterTry bounds one attempt. A server without a leader does not answer.
	clusterTry = 2 * time.Second

	// pollCluster is the pause between two attempts.
	pollCluster = 50 * time.Millisecond
)

// newCluster starts a cluster. The caller closes it, unless there is an error.
func newCluster(ctx context.Context, o Options) (*server, error) {
	return openServer(ctx, o, clusterServers)
}

// members returns the options of n servers that form a cluster, with their files in folders of dir.
func members(n int, dir string) (all []embedded.Options, err error) {
	addresses, err := freeAddresses(n)
	if err != nil {
		return nil, err
	}
	for i := range n {
		all = append(all, embedded.Options{Addr: localhost, Dir: filepath.Join(dir, strconv.Itoa(i)), Cluster: addresses, Member: i})
	}
	return all, nil
}

// freeAddresses returns n addresses that no program listens on.
func freeAddresses(n int) (addresses []string, err error) {
	var open []net.Listener
	defer func() { // after all are chosen, so that they differ
		for _, l := range open {
			err = errors.Join(err, l.Close())
		}
	}()
	for range n {
		l, err := net.Listen("tcp", localhost)
		if err != nil {
			return nil, fmt.Errorf("find a free port for a server: %w", err)
		}
		open, addresses = append(open, l), append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// waitForCluster creates the anchor. It tries again until the servers have found each other, because the anchor has a replica on each.
func (s *server) waitForCluster(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	for {
		trying, stop := context.WithTimeout(ctx, clusterTry)
		err := s.anchor(trying)
		stop()
		if err == nil {
			return nil
		}
		if pause(ctx, pollCluster) != nil {
			return fmt.Errorf("start a cluster of %d servers: %w", s.replicas, err)
		}
	}
}
