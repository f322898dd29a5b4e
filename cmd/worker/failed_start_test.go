package main

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestAStartThatFailsLeavesNoConsumersBehind checks that a failed start reports the reason and creates no consumers.
func TestAStartThatFailsLeavesNoConsumersBehind(t *testing.T) {
	partitions := &jetstream.SubjectTransformConfig{Source: ">", Destination: "{{partition(6)}}.>"}
	results := jetstream.StreamConfig{Name: "RESULTS", Subjects: []string{"results.>", "deadletter.>"}}
	for name, c := range map[string]struct {
		input   jetstream.StreamConfig
		results jetstream.StreamConfig
		env     []string
		want    string
	}{
		"another number of partitions": {
			jetstream.StreamConfig{SubjectTransform: partitions}, results, []string{"MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=4"}, "set MILLRACE_PARTITIONS=6",
		},
		"a work queue": {
			jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, results, []string{"MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=4"}, "MILLRACE_DELIVERY=shared",
		},
		"shared, with partitions": {jetstream.StreamConfig{SubjectTransform: partitions}, results, nil, "MILLRACE_PARTITIONS=6"},
		"results that are not confirmed": {
			jetstream.StreamConfig{SubjectTransform: partitions}, jetstream.StreamConfig{Name: "RESULTS", Subjects: results.Subjects, NoAck: true},
			[]string{"MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=6"}, "clear no_ack",
		},
		"exactly once is required": {
			jetstream.StreamConfig{SubjectTransform: partitions}, results, []string{"MILLRACE_DELIVERY=exclusive", "MILLRACE_PARTITIONS=6", "MILLRACE_EXACTLY_ONCE=required"},
			"nats stream edit RESULTS --subjects 'results.>' --subjects 'deadletter.>' --subjects 'commits.RESULTS.>' --allow-fast --force",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			s := serve(t)
			nc, err := nats.Connect(s.URL(), nats.Timeout(10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			c.input.Name, c.input.Subjects = "INGEST", []string{"ingest.>"}
			for _, config := range []jetstream.StreamConfig{c.input, c.results} {
				if _, err := js.CreateStream(ctx, config); err != nil {
					t.Fatal(err)
				}
			}
			env := append([]string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true"}, c.env...)
			call(t, env).want(t, exitFailed, c.want)
			call(t, env, "check").want(t, exitFailed, c.want)
			stream, err := js.Stream(ctx, "INGEST")
			if err != nil {
				t.Fatal(err)
			}
			if n := stream.CachedInfo().State.Consumers; n != 0 {
				t.Errorf("%d consumers are left behind", n)
			}
		})
	}
}
