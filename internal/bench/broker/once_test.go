package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace/internal/bench"
	"millrace/internal/bench/report"
	"millrace/internal/ingest/commit"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natsconn"
	"millrace/internal/ingest/topology"
)

// wantOnce checks the rows that show the cost of exactly once on one server, and wantCluster those on three.
func wantOnce(t *testing.T, r *report.Report, sizes int) {
	t.Helper()
	wantGuarantees(t, r, sizes, onceEntries)
}

func wantCluster(t *testing.T, r *report.Report, sizes int) {
	t.Helper()
	wantGuarantees(t, r, sizes, clusterEntries)
}

func wantGuarantees(t *testing.T, r *report.Report, sizes int, entries []bench.Entry) {
	t.Helper()
	for g, e := range entries {
		list := rows(r, e.Name)
		if len(list) != sizes {
			t.Errorf("%d rows %s, want %d", len(list), e.Name, sizes)
		}
		for _, row := range list {
			names := []string{figurePayloads, figureBytes, figureFill, bench.FigureCores}
			if guarantee(g) != byID {
				names = append(names, figureOverWindow)
			}
			wantFigures(t, row, names...)
		}
	}
}

// TestClusterNeedsItsOwnServers checks that rows on three servers report that they can't run on the user's server.
func TestClusterNeedsItsOwnServers(t *testing.T) {
	t.Parallel()
	o := tiny(openHost(t), newBench(t, Options{Server: natsconn.Server{URL: "nats://127.0.0.1:1"}}))
	o.Rows = []string{rowWindow3, rowOnce3}
	r := run(t, o)
	for _, name := range o.Rows {
		if list := rows(r, name); len(list) != 1 || !strings.Contains(list[0].Skipped, "leave out --server") {
			t.Errorf("%s has %+v, want one row that says what it takes", name, list)
		}
	}
}

// TestMarkersNeedBatches checks that rows with commit markers report that the server can't store any.
func TestMarkersNeedBatches(t *testing.T) {
	t.Parallel()
	b := newBench(t, Options{})
	b.withoutBatches = true
	o := tiny(openHost(t), b)
	o.Rows = []string{rowWindow, rowOnce}
	r := run(t, o)
	wantFigures(t, rows(r, rowWindow)[0], figurePayloads)
	if list := rows(r, rowOnce); len(list) != 1 || !strings.Contains(list[0].Skipped, "2.14") {
		t.Errorf("%+v, want one row that says what it takes", list)
	}
}

// TestMarkersAreChecked checks that missing, outdated and unexpected commit markers are found.
func TestMarkersAreChecked(t *testing.T) {
	t.Parallel()
	const each = 2
	s := shaped(t, pinned, load{each * partitions, unframed{7, 10}})
	inputs, err := s.js.Stream(t.Context(), s.in)
	if err != nil {
		t.Fatal(err)
	}
	right := func(fast bool) markers {
		last := markers{}
		for p := range partitions {
			m, err := inputs.GetLastMsgForSubject(t.Context(), fmt.Sprint(p, ".>"))
			if err != nil {
				t.Fatal(err)
			}
			last[topology.CommitSubject(commitPrefix, s.out, s.in, consumer, p)] = fmt.Appendf(nil, `{"sequence":%d,"fast":%v}`, m.Sequence, fast)
		}
		return last
	}
	changed := func(p int, body string) markers {
		last := right(true)
		if body == "" {
			delete(last, topology.CommitSubject(commitPrefix, s.out, s.in, consumer, p))
		} else {
			last[topology.CommitSubject(commitPrefix, s.out, s.in, consumer, p)] = []byte(body)
		}
		return last
	}
	for _, c := range []struct {
		name string
		g    guarantee
		last markers
		want string
	}{
		{"none", byID, nil, ""},
		{"some without exactly once", byID, right(true), "markers of 8 partitions, want none"},
		{"right", byMarker, right(true), ""},
		{"right without ids", byMarkerWithoutIDs, right(true), ""},
		{"atomic batches", byMarker, right(false), "fast batches: false, want true"},
		{"missing", byMarker, changed(3, ""), "partition 3 has no commit marker"},
		{"outdated", byMarker, changed(5, `{"sequence":0,"fast":true}`), "of partition 5 is at input 0"},
		{"no JSON", byMarkerWithoutIDs, changed(0, "x"), `of partition 0 is "x"`},
	} {
		err := s.checkMarkers(t.Context(), c.g, c.last)
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), "WRONG RESULT") || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: the error is %v, want it to say %q", c.name, err, c.want)
		}
	}
}

// TestIDsFollowTheGuarantee checks that the worker's options and the checked headers agree.
func TestIDsFollowTheGuarantee(t *testing.T) {
	for g, want := range map[guarantee]struct {
		once topology.ExactlyOnce
		ids  bool
	}{byID: {topology.Off, true}, byMarker: {topology.Required, true}, byMarkerWithoutIDs: {topology.Required, false}} {
		var l topology.Topology
		g.configure(&l)
		named, other := g.idHeader()
		if l.ExactlyOnce != want.once || l.ResultIDs != want.ids || (named == commit.HeaderID) == want.ids || named == other {
			t.Errorf("guarantee %d has the options %v and %v, and ids in %s, not %s", g, l.ExactlyOnce, l.ResultIDs, named, other)
		}
	}
}

// TestProgramArguments checks that a server's process reads what the bench gives to it.
func TestProgramArguments(t *testing.T) {
	all, err := members(clusterServers, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append(all, embedded.Options{Addr: localhost, Dir: "d"}) {
		got, err := ServerOptions(programArgs(want))
		if err != nil || got.Addr != want.Addr || got.Dir != want.Dir || got.Member != want.Member || !slices.Equal(got.Cluster, want.Cluster) {
			t.Errorf("got %+v, error %v, want %+v", got, err, want)
		}
	}
	for _, args := range [][]string{nil, {"d", "0"}, {"d", "first", "127.0.0.1:1"}} {
		if o, err := ServerOptions(args); err == nil {
			t.Errorf("%q is read as %+v", args, o)
		}
	}
}
