package config_test

import (
	"errors"
	"slices"
	"testing"

	"millrace/internal/config"
)

// TestShards checks the names that a shard gets from the templates.
func TestShards(t *testing.T) {
	for _, tc := range []struct {
		env      map[string]string
		stream   string
		subjects []string // of the stream
		want     [4]string
		filters  []string
	}{
		{nil, "INGEST", []string{"other.>"}, [4]string{"INGEST", "RESULTS", "results", "deadletter"}, []string{"ingest.>"}},
		{map[string]string{"MILLRACE_STREAM": "A, B"}, "B", nil, [4]string{"B", "RESULTS", "results", "deadletter"}, []string{"b.>"}},
		{map[string]string{"MILLRACE_STREAM": "A, B"}, "B", []string{"x.*", "y"}, [4]string{"B", "RESULTS", "results", "deadletter"}, []string{"x.*", "y"}},
		{map[string]string{"MILLRACE_STREAM": "IN-*", "MILLRACE_RESULT_STREAM": "OUT-{1}"}, "IN-eu", nil,
			[4]string{"IN-eu", "OUT-eu", "results-eu", "deadletter-eu"}, []string{"in-eu.>"}},
		{map[string]string{"MILLRACE_STREAM": "IN-*-*", "MILLRACE_RESULT_STREAM": "OUT-{2}-{1}", "MILLRACE_RESULT_PREFIX": "r.{1}.{2}",
			"MILLRACE_SUBJECTS": "docs.{1}.>,mail.{2}"}, "IN-eu-7", []string{"z"}, [4]string{"IN-eu-7", "OUT-7-eu", "r.eu.7", "deadletter-7-eu"}, []string{"docs.eu.>", "mail.7"}},
		{map[string]string{"MILLRACE_RESULT_STREAM": "{0}-R"}, "INGEST", nil, [4]string{"INGEST", "INGEST-R", "results-INGEST", "deadletter-INGEST"}, []string{"ingest.>"}},
	} {
		c := good(t, tc.env)
		if !c.Matches(tc.stream) {
			t.Errorf("%v: %s is no input stream", tc.env, tc.stream)
		}
		s, err := c.Shard(tc.stream, tc.subjects)
		if err != nil {
			t.Errorf("%v: %v", tc.env, err)
			continue
		}
		if got := [4]string{s.Stream, s.ResultStream, s.ResultPrefix, s.DeadletterPrefix}; got != tc.want || !slices.Equal(s.Subjects, tc.filters) {
			t.Errorf("%v: %q %q, want %q %q", tc.env, got, s.Subjects, tc.want, tc.filters)
		}
	}
}

// TestPatterns checks which streams a list names.
func TestPatterns(t *testing.T) {
	c := good(t, map[string]string{"MILLRACE_STREAM": "A,B-*,*-C-*"})
	for stream, want := range map[string]bool{"A": true, "AA": false, "B-": true, "B-1": true, "b-1": false, "x-C-y": true, "C-y": false} {
		if got := c.Matches(stream); got != want {
			t.Errorf("%s: %v, want %v", stream, got, want)
		}
	}
	if !c.IsMany() || good(t, nil).IsMany() {
		t.Error("only a list or a pattern names many streams")
	}
}

// TestShardsWhoseNamesConflict shows that a stream that was found is refused if the worker would feed itself.
func TestShardsWhoseNamesConflict(t *testing.T) {
	for _, tc := range []struct {
		streams, results, stream string
		subjects                 []string
		refused                  bool
	}{
		{"IN-*", "RESULTS", "IN-1", []string{">"}, true},
		{"IN-*", "RESULTS", "IN-1", []string{"results.>"}, true},
		{"IN-*", "RESULTS", "IN-1", []string{"*.a"}, true},
		{"IN-*", "RESULTS", "IN-1", []string{"a"}, false},
		{"IN-*", "RESULTS", "IN-mirror", nil, false},
		{"IN-*", "IN{1}", "IN--eu", []string{"in.>"}, true}, // the results go to IN-eu
		{"IN*", "{1}", "IN", []string{"in.>"}, true},        // the result stream has no name
	} {
		_, err := good(t, map[string]string{"MILLRACE_STREAM": tc.streams, "MILLRACE_RESULT_STREAM": tc.results}).Shard(tc.stream, tc.subjects)
		if refused := errors.As(err, new(*config.Error)); refused != tc.refused {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
