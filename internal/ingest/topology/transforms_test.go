package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/store"
)

// TestStoredFilters shows that filters follow a transform, and that overlapping filters are merged, because the server refuses them.
func TestStoredFilters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		transform *jetstream.SubjectTransformConfig
		subjects  string
		want      string
	}{
		{nil, "out,out.>", "out,out.>"},
		{transform(">", "{{partition(8)}}.>"), "out,out.>,in.a", "*.out,*.out.>,*.in.a"},
		{transform("", "{{ Partition(8,1,2)}}.>"), "in.>", "*.in.>"},
		{transform("in.>", "out.>"), "in.>", "out.>"},
		{transform("in.>", "out.>"), "in.a.b", "out.a.b"},
		{transform("other.>", "out.>"), "in.>", "in.>"},
		{transform("in.*", "out.{{wildcard(1)}}.x"), "in.*", "out.*.x"},
		{transform("in.*", "out.$1"), "in.a", "out.*"},
		{transform("in.a.>", "out.>"), "in.>", "in.>,out.>"},
		{transform("out.>", "archive.>"), "out,out.>", "out,archive.>"},
		{transform("out.a.>", "out.b.>"), "out,out.>", "out,out.>"},
		{transform("out.a.*", "out.*.$1"), "out.*.x", "out.*.*"},
		{transform("out.>", "all"), "out,out.>,dead.>", "out,all,dead.>"},
		{transform("out.>", ">"), "out,out.>,dead.>", ">"},
	} {
		if got := strings.Join(StoredFilters(c.transform, strings.Split(c.subjects, ",")), ","); got != c.want {
			t.Errorf("%+v stores %q for the filters %q, want %q", c.transform, c.subjects, got, c.want)
		}
	}
}

// TestFiltersOfPartitions shows that a filter matches a stored subject only if the subject begins with a number that the transform
// can produce.
func TestFiltersOfPartitions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		destination, filter string
		want                bool
	}{
		{"{{partition(8)}}.>", "ingest.>", false}, {"{{partition(8)}}.>", "7.ingest.>", true}, {"{{partition(8)}}.>", "8.ingest.>", false},
		{"{{partition(8)}}.>", "*.ingest.a", true}, {"{{partition(8,1,2)}}.>", "0.>", true}, {"{{partition(8)}}.>", ">", true},
		{"in.>", "ingest.>", false}, {"in.>", "in.ingest.a", true}, {"{{partition(99999999999999999999)}}.>", "ingest.>", false},
	} {
		if got := storesAny(transform(">", c.destination), []string{"ingest.>"}, []string{c.filter}); got != c.want {
			t.Errorf("%s, filter %q: %v, want %v", c.destination, c.filter, got, c.want)
		}
	}
}

func TestPartitionsOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		source, destination string
		want                int
	}{
		{">", "{{partition(8)}}.>", 8}, {">", "{{ Partition(8,1,2) }}.>", 8}, {"a.>", "{{partition(8)}}.>", 0}, {">", "{{partition(8)}}", 0},
		{">", "{{partition(8)}}.a.>", 0}, {">", "a.{{partition(8)}}.>", 0}, {">", "a.>", 0},
	} {
		if got := partitionsOf(transform(c.source, c.destination)); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.source, c.destination, got, c.want)
		}
	}
}

// TestStreamsThatDoNotFitTheDelivery shows that Provision and Inspect name the obstacle, and that their advice helps. Provision
// creates no consumers, and Inspect doesn't advise creating any.
func TestStreamsThatDoNotFitTheDelivery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		partitions int // 0 means shared delivery
		stream     streamConfig
		want       []string
		not        string // text that must not occur
	}{
		{"shared, on partitions", 0, streamConfig{SubjectTransform: partitionTransform(6)},
			[]string{"it would process nothing", "MILLRACE_DELIVERY=exclusive and MILLRACE_PARTITIONS=6"}, "recreate"},
		{"shared, on another transform", 0, streamConfig{SubjectTransform: transform("ingest.>", "in.>")},
			[]string{"it would process nothing", "recreate the consumer with filters"}, "exclusive"},
		{"a work queue", 4, streamConfig{Retention: jetstream.WorkQueuePolicy},
			[]string{"workqueue retention", "set MILLRACE_DELIVERY=shared, or MILLRACE_STREAM"}, "2.14"},
		{"a work queue with partitions", 4, streamConfig{Retention: jetstream.WorkQueuePolicy, SubjectTransform: partitionTransform(4)},
			[]string{"workqueue retention", "retention by limits and the subject transform"}, "2.14"},
		{"another number of partitions", 4, streamConfig{SubjectTransform: partitionTransform(6)},
			[]string{"one of 6 partitions before its subjects, and MILLRACE_PARTITIONS is 4", "set MILLRACE_PARTITIONS=6"}, "MILLRACE_DELIVERY=shared"},
		{"too many partitions", 4, streamConfig{SubjectTransform: partitionTransform(257)},
			[]string{"one of 257 partitions before its subjects, and workers support 256"}, "MILLRACE_DELIVERY=shared"},
		{"another transform", 4, streamConfig{SubjectTransform: transform("ingest.>", "in.>")},
			[]string{"maps", "to a stream with the subject transform"}, "MILLRACE_DELIVERY=shared"},
		{"no transform", 4, streamConfig{}, []string{"does not put a partition before its subjects", "MILLRACE_DELIVERY=shared"}, "2.14"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.topology.Exclusive, r.topology.Partitions = c.partitions > 0, c.partitions
			r.add("INGEST", "ingest.>", c.stream)
			err := fmt.Sprint(Provision(r.Ctx(), r.JS, r.topology, quiet))
			lines := r.found()
			wantLine(t, []string{err}, c.want...)
			wantLine(t, lines, append(c.want, "error stream INGEST")...)
			if strings.Contains(err, c.not) {
				t.Errorf("provisioning says %q: %s", c.not, err)
			}
			if names := r.Consumers("INGEST"); len(names) > 0 || strings.Contains(fmt.Sprint(lines), "consumer millrace") {
				t.Errorf("consumers %v are created, or advised: %s", names, lines)
			}
		})
	}
}

func TestMappedSubjects(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"ingest.web.en": "results.web.en", "ingest": "results", "a.b": "results.b",
	} {
		if got := store.MapSubject("results", subject); got != want {
			t.Errorf("%q becomes %q, want %q", subject, got, want)
		}
	}
	got := mappedFilters("out.put", []string{"ingest.>", "a.*.b", "*", ">"})
	if want := []string{"out.put.>", "out.put.*.b", "out.put", "out.put.>"}; !slices.Equal(got, want) {
		t.Errorf("filters become %v, want %v", got, want)
	}
}

func TestDeliveryLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ ours, servers, want int }{
		{5, -1, 5}, {5, 0, 5}, {5, 10, 5}, {5, 6, 5}, {5, 5, 4}, {5, 2, 1},
		{5, 1, 1}, // the only delivery is used for a try
	} {
		if got := DeliveryLimit(c.ours, c.servers); got != c.want {
			t.Errorf("DeliveryLimit(%d, %d) = %d, want %d", c.ours, c.servers, got, c.want)
		}
	}
}
