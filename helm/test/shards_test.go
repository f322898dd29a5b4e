package test

import (
	"slices"
	"strings"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"

	"millrace/internal/config"
)

// TestNamesOfShards installs a release with several streams or with templates. It shows which names the worker then computes for one of the
// streams, whose own subjects are docs.>.
func TestNamesOfShards(t *testing.T) {
	for _, c := range []struct {
		set    values
		stream string
		want   []string // result stream, prefixes of results and dead letters, and subjects
	}{
		{values{}, "INGEST", []string{"RESULTS", "results", "deadletter", "ingest.>"}},
		{values{"config.stream": "A, B"}, "B", []string{"RESULTS", "results", "deadletter", "docs.>"}},
		{values{"config.stream": "A,B", "config.subjects": []string{"in.{0}.>"}, "config.provision": true}, "B", []string{"RESULTS", "results", "deadletter", "in.B.>"}},
		{values{"config.stream": "IN-*"}, "IN-eu", []string{"RESULTS", "results", "deadletter", "docs.>"}},
		{values{"config.stream": "IN-*", "config.resultStream": "OUT-{1}"}, "IN-eu", []string{"OUT-eu", "results-eu", "deadletter-eu", "docs.>"}},
		{values{"config.stream": "IN-*", "config.resultStream": "OUT-{1}", "config.resultPrefix": "out.{1}", "config.deadletterPrefix": "dead", "config.subjects": []string{"ingest.{1}"}}, "IN-eu",
			[]string{"OUT-eu", "out.eu", "dead", "ingest.eu"}},
		{values{"config.resultStream": "{0}-R"}, "INGEST", []string{"INGEST-R", "results-INGEST", "deadletter-INGEST", "ingest.>"}},
	} {
		t.Run("", func(t *testing.T) {
			for name, value := range workerEnvironment(t, enough.with(c.set)) {
				t.Setenv(name, value)
			}
			cfg, err := config.Load(nil)
			if err != nil {
				t.Fatalf("%v: %v", c.set, err)
			}
			shard, err := cfg.Shard(c.stream, []string{"docs.>"})
			if err != nil {
				t.Fatalf("%v: %v", c.set, err)
			}
			if got := append([]string{shard.ResultStream, shard.ResultPrefix, shard.DeadletterPrefix}, shard.Subjects...); !slices.Equal(got, c.want) {
				t.Errorf("%v: the worker computes %q, want %q", c.set, got, c.want)
			}
		})
	}
}

// TestMistakesWithSeveralStreams sets names that conflict. Except for the size of the embedded server's volume, the worker refuses them too.
func TestMistakesWithSeveralStreams(t *testing.T) {
	const noStar = " stands for a * that a name or pattern of config.stream doesn't have: use {0} for the whole name of the input stream"
	w := workerOf(t, enough)
	for want, set := range map[string]values{
		`config.stream is "A,B,A", which names a stream twice: name each stream once`:                                                          {"config.stream": "A,B,A"},
		"config.stream names the result stream RESULTS too, so the worker would read its own output for ever: set another config.resultStream": {"config.stream": "IN-*,RES*"},
		"config.stream names the result stream IN-x-out too":                                                                                   {"config.stream": "IN-*", "config.resultStream": "{0}-out"},
		"config.stream and config.resultStream are both INGEST, and the worker creates two streams":                                            {"config.resultStream": "{0}", "config.provision": true},
		"config.resultStream has {2}, which" + noStar:                                                                                          {"config.stream": "IN-*", "config.resultStream": "OUT-{2}"},
		"config.resultPrefix has {10}, which" + noStar:                                                                                         {"config.resultPrefix": "out-{10}"},
		"config.subjects has {1}, which" + noStar:                                                                                              {"config.stream": "IN-*,B", "config.subjects": []string{"in.{1}.>"}},
		`config.resultStream is "OUT-{a}", which has braces that are no placeholder: use {0} for the name`:                                     {"config.stream": "IN-*", "config.resultStream": "OUT-{a}"},
		"config.resultStream is OUT-{1} and config.resultPrefix is out, and only one of them depends on the":                                   {"config.stream": "IN-*", "config.resultStream": "OUT-{1}", "config.resultPrefix": "out"},
		"config.resultStream is RESULTS and config.resultPrefix is out-{1}, and only one":                                                      {"config.stream": "IN-*", "config.resultPrefix": "out-{1}"},
		`config.subjects is "a.>" for each of several streams, and the server refuses streams with the same`:                                   {"config.stream": "A,B", "config.subjects": []string{"a.>"}, "config.provision": true},
		`config.subjects has "results.>", which matches what the worker publishes under config.resultPrefix`:                                   {"config.stream": "A,Results", "config.resultStream": "OUT"},
		`config.subjects has "a.>" and "a.INGEST", which match the same subjects`:                                                              {"config.subjects": []string{"a.>", "a.{0}"}},
		"config.resultPrefix (results-IN-x) and config.deadletterPrefix (results-IN-x.dead) overlap":                                           {"config.stream": "IN-*", "config.resultStream": "OUT-{0}", "config.deadletterPrefix": "results-{0}.dead"},
		"config.operators has neardup with several streams in config.stream, and only a worker of a single":                                    {"config.operators": []string{"neardup"}, "config.delivery": "exclusive", "config.stream": "IN-*", "config.resultStream": "OUT-{0}"},
		"config.delivery is exclusive, and results of several input streams can't be in one stream then: set config.resultStream":              {"config.delivery": "exclusive", "config.stream": "IN-*"},
		"nats.embedded.sizeLimit is 10Gi, but the streams and their files may take 14792Mi, and Kubernetes":                                    modes["embedded"].with(values{"config.stream": "A,B"}),
		"nats.embedded.sizeLimit is 10Gi, but the streams and their files may take 20480Mi, and Kubernetes evi":                                modes["embedded"].with(values{"config.stream": "A,B", "config.resultStream": "{0}-R"}),
	} {
		if _, err := render(t, enough.with(set)); err == nil || !strings.Contains(err.Error(), "1 problem in the values:\n  - "+want) {
			t.Errorf("%v: want %q in\n%v", set, want, err)
		}
		if set["nats.embedded.enabled"] == nil && w.refuses(t, set) == nil {
			t.Errorf("the worker accepts %v", set)
		}
	}
}

// TestKEDAReadsOneStream shows that KEDA must read the lag of several streams from Prometheus.
func TestKEDAReadsOneStream(t *testing.T) {
	const want = "1 problem in the values:\n  - config.stream names several streams, and KEDA would read the lag of only one from NATS: let KEDA query Prometheus"
	for _, stream := range []string{"A,B", "IN-*"} {
		many := values{"config.stream": stream, "config.resultStream": "RESULTS-{0}"}
		for _, set := range []values{
			byKEDA, byKEDA.with(values{"autoscaling.keda.natsServerMonitoringEndpoint": ""}), byKEDA.with(measured).with(values{"autoscaling.minReplicas": 0}),
			byKEDA.with(measured).with(values{"autoscaling.lagThreshold": 5000}), byKEDA.with(values{"config.delivery": "exclusive", "config.partitions": 256}),
		} {
			if _, err := render(t, set.with(many)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s, %v: %v", stream, set, err)
			}
		}
		for _, delivery := range []string{"shared", "exclusive"} {
			set := enough.with(measured).with(many).with(values{"config.delivery": delivery})
			triggers := find[*keda.ScaledObject](t, objects(t, set)).Spec.Triggers
			if len(triggers) != 1 || triggers[0].Type != "prometheus" {
				t.Errorf("%v: the triggers are %v, want one for Prometheus", set, triggers)
			}
		}
		objects(t, byHPA.with(many))
	}
}

// TestWindowCountsStreams compares the capacity in the notes with the worker's own figure for three streams.
func TestWindowCountsStreams(t *testing.T) {
	set := byHPA.with(values{"config.stream": "A,B,C", "config.resultStream": "RESULTS-{0}", "autoscaling.lagThreshold": 5000, "autoscaling.hpa.metricName": "millrace_lag"})
	for delivery, consumers := range map[string]int{"shared": 3, "exclusive": 3 * 8} {
		notes := mustRender(t, set.with(values{"config.delivery": delivery})).notes
		want := min(capacityOf(1, 4, 8192, consumers).InFlight(), 3*4*capacityOf(1, 4, 8192, 1).MaxAckPending())
		if !strings.Contains(notes, "in flight ("+textOf(want)+")") {
			t.Errorf("%s: the notes don't say that a pod can have %d in flight:\n%s", delivery, want, notes)
		}
	}
}

// TestNotesNameAStream checks the commands in the notes for several streams.
func TestNotesNameAStream(t *testing.T) {
	for _, pods := range []int{0, 1} {
		notes := mustRender(t, enough.with(values{"config.stream": "A,B", "replicaCount": pods})).notes
		for _, want := range []string{"worker send --stream NAME\n", "worker results --follow --stream NAME\n", "NAME is one of the streams A,B.\n"} {
			if !strings.Contains(notes, want) {
				t.Errorf("%d pods: no %q in\n%s", pods, want, notes)
			}
		}
	}
	notes := mustRender(t, enough.with(values{"config.subjects": []string{"in.{0}.>"}})).notes
	if want := "sends to in.INGEST.>, such as: nats pub in.INGEST.hello "; !strings.Contains(notes, want) {
		t.Errorf("no %q in\n%s", want, notes)
	}
}
