package faults

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestServerRestarted stops the only server under load and starts it again. It alternates between a normal shutdown and
// a crash.
func TestServerRestarted(t *testing.T) {
	eachMode(t, func(r *rig) { r.restartServer(times(10, 2), "restart of the server", r.ordinary()) })
}

func (r *rig) restartServer(restarts int, fault string, l load) {
	r.serve(1)
	r.work(2)
	f := r.feed(endless, l.input)
	for i := range restarts {
		r.awaitResults(1 + r.rng.IntN(l.between))
		s := r.servers[0]
		if i%2 == 0 {
			s.kill()
		} else {
			s.terminate()
		}
		s.start(r.t)
		r.until("the server is back", r.jetStreamAnswers)
	}
	r.awaitResults(1)
	f.finish()
	r.close(fault, restarts)
}

// replicas is the number of servers in a cluster that store each message.
const replicas = 3

// TestClusterLeaderKilled kills the server that leads one of the streams in a cluster of three, under load.
func TestClusterLeaderKilled(t *testing.T) {
	eachMode(t, func(r *rig) {
		kills := times(10, 1)
		r.serve(replicas)
		r.work(2)
		r.replicate()
		f := r.feed(endless, r.inputs())
		for range kills {
			r.awaitResults(1 + r.rng.IntN(2000))
			stream := []string{inputStream, resultStream}[r.rng.IntN(2)]
			s := r.leader(stream)
			s.kill()
			r.until("another server leads "+stream, func() bool {
				now := r.whoLeads(stream)
				return now != "" && now != s.name
			})
			r.awaitResults(1)
			s.start(r.t)
			r.until("all replicas are current", r.isReplicated)
		}
		f.finish()
		r.until("all replicas are current", r.isReplicated)
		r.close("SIGKILL of a stream's leader, three replicas", kills)
	})
}

// replicate makes every server store all streams and their consumers.
func (r *rig) replicate() {
	r.t.Helper()
	for _, name := range append(r.outputs(), inputStream) {
		config := r.StreamConfig(name)
		config.Replicas = replicas
		r.Create(config)
	}
	r.until("all streams are replicated", r.isReplicated)
}

func (r *rig) cluster(stream string) *jetstream.ClusterInfo {
	ctx, cancel := r.shortly()
	defer cancel()
	s, err := r.JS.Stream(ctx, stream)
	if err != nil {
		return nil
	}
	return s.CachedInfo().Cluster
}

func (r *rig) whoLeads(stream string) string {
	if c := r.cluster(stream); c != nil {
		return c.Leader
	}
	return ""
}

func (r *rig) leader(stream string) *server {
	r.t.Helper()
	var leader *server
	r.until("a server leads "+stream, func() bool {
		name := r.whoLeads(stream)
		for _, s := range r.servers {
			if s.name == name {
				leader = s
			}
		}
		return leader != nil
	})
	return leader
}

// isReplicated reports whether every server stores all streams and their consumers.
func (r *rig) isReplicated() bool {
	for _, stream := range []string{inputStream, resultStream} {
		if !isCurrent(r.cluster(stream)) {
			return false
		}
	}
	ctx, cancel := r.shortly()
	defer cancel()
	s, err := r.JS.Stream(ctx, inputStream)
	if err != nil {
		return false
	}
	consumers := s.ListConsumers(ctx)
	all := true
	for info := range consumers.Info() {
		all = all && isCurrent(info.Cluster)
	}
	return all && consumers.Err() == nil
}

// isCurrent reports whether a leader exists and all replicas are up to date. A replica that has not responded recently
// is not up to date.
func isCurrent(c *jetstream.ClusterInfo) bool {
	if c == nil || c.Leader == "" || len(c.Replicas) != replicas-1 {
		return false
	}
	for _, peer := range c.Replicas {
		if !peer.Current || peer.Offline || peer.Active > time.Minute {
			return false
		}
	}
	return true
}
