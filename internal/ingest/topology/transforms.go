package topology

// This file applies a stream's subject transform. It maps the subject under which a message is published to the subject
// under which the stream stores it. Exclusive delivery needs the transform that puts a partition before each subject.

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/wildcard"
)

// partitionTransform returns the transform that puts the partition's number before each subject. A subject always gets the same
// number.
func partitionTransform(partitions int) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{Source: ">", Destination: fmt.Sprintf("{{partition(%d)}}.>", partitions)}
}

// partitionFilters returns the stored subjects of a partition.
func partitionFilters(partition string, subjects []string) []string {
	filters := make([]string, len(subjects))
	for i, s := range subjects {
		filters[i] = partition + "." + s
	}
	return filters
}

// maxPartitions is the highest value that MILLRACE_PARTITIONS may have.
const maxPartitions = 256

// unfit returns the reason why a worker can't receive its inputs from an input stream with the configuration c, and advice. Both
// are empty if it can. filters are the consumer's filters with shared delivery.
func unfit(c jetstream.StreamConfig, l Topology, filters []string) (found, advice string) {
	if l.Exclusive {
		return unfitForPartitions(c, l.Partitions)
	}
	t := c.SubjectTransform
	if t == nil || storesAny(t, l.Subjects, filters) {
		return "", ""
	}
	found = fmt.Sprintf("maps subjects (%s), so messages published under %v are stored where the consumer's filters %v match nothing: it "+
		"would process nothing", transformText(t), l.Subjects, filters)
	if n := partitionsOf(t); n > 0 && n <= maxPartitions && c.Retention != jetstream.WorkQueuePolicy {
		return found, fmt.Sprintf("set MILLRACE_DELIVERY=exclusive and MILLRACE_PARTITIONS=%d, which is what the stream is set up for, or set "+
			"MILLRACE_STREAM to a stream without a subject transform", n)
	}
	return found, "set MILLRACE_STREAM to a stream without a subject transform, or recreate the consumer with filters for the subjects as " +
		"they are stored"
}

// unfitForPartitions does the same as unfit for exclusive delivery.
func unfitForPartitions(c jetstream.StreamConfig, partitions int) (found, advice string) {
	const queue = "has workqueue retention, where the server allows only consumers that acknowledge each message by itself; exclusive " +
		"delivery acknowledges many at once"
	t, want, n := c.SubjectTransform, partitionTransform(partitions), partitionsOf(c.SubjectTransform)
	another := "set MILLRACE_STREAM to a stream with the subject transform " + transformText(want)
	switch {
	case c.Retention == jetstream.WorkQueuePolicy && t == nil:
		return queue, "set MILLRACE_DELIVERY=shared, or MILLRACE_STREAM to a stream with retention by limits"
	case c.Retention == jetstream.WorkQueuePolicy:
		return queue + ". It also maps subjects, which shared delivery does not support", "set MILLRACE_STREAM to a stream with retention by " +
			"limits and the subject transform " + transformText(want) + "; or to one without a transform, and MILLRACE_DELIVERY=shared"
	case t != nil && *t == *want:
		return "", ""
	case n > maxPartitions:
		return fmt.Sprintf("puts one of %d partitions before its subjects, and workers support %d", n, maxPartitions), another
	case n > 0:
		return fmt.Sprintf("puts one of %d partitions before its subjects, and MILLRACE_PARTITIONS is %d", n, partitions),
			fmt.Sprintf("set MILLRACE_PARTITIONS=%d on every worker. To have another number of partitions, make a stream with the subject "+
				"transform %s: what this one holds keeps its subjects. Shared delivery would process nothing of it", n, transformText(want))
	case t != nil:
		return "maps " + transformText(t), another
	}
	return "does not put a partition before its subjects", "give it the subject transform " + transformText(want) + ", or set " +
		"MILLRACE_DELIVERY=shared. Stored messages keep their subjects: keep workers with shared delivery running until these are processed " +
		"(docs/answers.md)"
}

func transformText(t *jetstream.SubjectTransformConfig) string {
	if t == nil {
		return ""
	}
	return fmt.Sprintf("%q to %q", t.Source, t.Destination)
}

// partitionsOf returns the number of partitions of a transform for exclusive delivery. It returns 0 for any other transform.
func partitionsOf(t *jetstream.SubjectTransformConfig) int {
	if t == nil || t.Source != ">" || !strings.HasSuffix(t.Destination, ".>") || strings.Count(t.Destination, ".") > 1 {
		return 0
	}
	return partitionsIn(t.Destination)
}

var partitionFunction = regexp.MustCompile(`(?i)(?:^|\.)\{\{\s*partition\(\s*(\d+)\s*[,)]`)

// partitionsIn returns the number of partitions in a transform's destination, or in one of its tokens, such as {{partition(8)}} or
// {{partition(8,1,2)}}. It returns 0 if there is no such token.
func partitionsIn(destination string) int {
	match := partitionFunction.FindStringSubmatch(destination)
	if match == nil {
		return 0
	}
	n, _ := strconv.Atoi(match[1]) // the maximum if the number is too large
	return n
}

// storesAny reports whether a stream with transform t stores, under one of the filters, messages that are published under subjects.
func storesAny(t *jetstream.SubjectTransformConfig, subjects, filters []string) bool {
	const atMost = 1 << 16 // maximum number of partitions to try
	for partition := range max(min(partitionsIn(t.Destination), atMost), 1) {
		stored := storedFilters(t, subjects, strconv.Itoa(partition))
		for _, filter := range filters {
			if slices.ContainsFunc(stored, func(s string) bool { return wildcard.Overlap(s, filter) }) {
				return true
			}
		}
	}
	return false
}

// storedFilters returns filters for the stored subjects of messages that are published under subjects to a stream with transform
// t. In them, partition replaces the function of t that returns a partition's number.
func storedFilters(t *jetstream.SubjectTransformConfig, subjects []string, partition string) (stored []string) {
	if t == nil || t.Destination == "" {
		return subjects
	}
	source := cmp.Or(t.Source, ">")
	for _, s := range subjects {
		if !wildcard.Covers(source, s) {
			stored = append(stored, s) // the transform leaves some or all of these subjects unchanged
		}
		if wildcard.Overlap(source, s) {
			stored = append(stored, mapped(source, t.Destination, s, partition))
		}
	}
	return stored
}

// StoredFilters returns a consumer's filters for messages that are published under subjects to a stream with transform t. The
// server refuses overlapping filters, so StoredFilters replaces two overlapping filters by one filter that matches both. The new
// filter may match further subjects.
func StoredFilters(t *jetstream.SubjectTransformConfig, subjects []string) (filters []string) {
	for _, s := range storedFilters(t, subjects, "*") {
		for i := 0; i < len(filters); i++ {
			if wildcard.Overlap(filters[i], s) {
				s, filters, i = filterFor(filters[i], s), slices.Delete(filters, i, i+1), -1 // the new filter may overlap earlier filters
			}
		}
		filters = append(filters, s)
	}
	return filters
}

// filterFor returns a filter that matches every subject that one of two overlapping filters matches.
func filterFor(a, b string) string {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range x {
		switch {
		case x[i] == ">" || y[i] == ">":
			return strings.Join(append(x[:i:i], ">"), ".")
		case x[i] != y[i]:
			x[i] = "*"
		}
	}
	return strings.Join(x, ".")
}

// mapped returns a filter for the subjects into which destination transforms subjects that match both source and s.
func mapped(source, destination, s, partition string) string {
	tokens := strings.Split(destination, ".")
	for i, token := range tokens {
		switch {
		case token == ">":
			given, from := strings.Split(s, "."), strings.Count(source, ".")
			if from < len(given) { // otherwise s ends earlier with a wildcard
				tokens = append(tokens[:i], given[from:]...)
			}
		case partitionsIn(token) > 0:
			tokens[i] = partition
		case strings.HasPrefix(token, "$"), strings.HasPrefix(token, "{{"):
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}
