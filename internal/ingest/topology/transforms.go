package topology

// This file relates the subjects under which messages are published to those under which a stream stores them. A stream's subject
// transform maps the former to the latter. Exclusive delivery needs the transform that puts a partition before each subject.

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/wildcard"
)

// PartitionSubject removes the partition from a stored subject.
func PartitionSubject(stored string) string {
	_, subject, _ := strings.Cut(stored, ".")
	return subject
}

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
// are empty if it can. filters are the consumer's filters with shared delivery; no filters means all subjects.
func unfit(c jetstream.StreamConfig, l Topology, filters []string) (found, advice string) {
	if l.Exclusive {
		return unfitForPartitions(c, l.Partitions)
	}
	t, stored := c.SubjectTransform, storedFilters(c.SubjectTransform, l.Subjects)
	meets := func(filter string) bool {
		return slices.ContainsFunc(stored, func(s string) bool { return overlap(s, filter) })
	}
	if t == nil || len(filters) == 0 || slices.ContainsFunc(filters, meets) {
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
	if t == nil || t.Source != ">" {
		return 0
	}
	first, rest, _ := strings.Cut(t.Destination, ".")
	if n := partitionToken(first); rest == ">" {
		return n
	}
	return 0
}

var partitionFunction = regexp.MustCompile(`(?i)^\{\{\s*partition\(\s*(\d+)\s*[,)]`)

// partitionToken returns the number of partitions in a token of a transform's destination, such as {{partition(8)}} or
// {{partition(8,1,2)}}. It returns 0 for any other token.
func partitionToken(token string) int {
	match := partitionFunction.FindStringSubmatch(token)
	if match == nil {
		return 0
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		return 0 // too large
	}
	return n
}

// storedFilters returns filters for the stored subjects of messages that are published under subjects to a stream with transform
// t. The filters contain a partition token of the transform unchanged.
func storedFilters(t *jetstream.SubjectTransformConfig, subjects []string) []string {
	if t == nil || t.Destination == "" {
		return subjects
	}
	var stored []string
	for _, s := range subjects {
		source := t.Source
		if source == "" {
			source = ">"
		}
		if !overlap(source, s) {
			stored = append(stored, s)
			continue
		}
		if !wildcard.Covers(source, s) {
			stored = append(stored, s) // the transform leaves some of these subjects unchanged
		}
		stored = append(stored, mapped(source, t.Destination, s))
	}
	return stored
}

// StoredFilters returns a consumer's filters for messages that are published under subjects to a stream with transform t. The
// server refuses overlapping filters, so StoredFilters replaces two overlapping filters by one that matches both. The new filter
// may match further subjects.
func StoredFilters(t *jetstream.SubjectTransformConfig, subjects []string) (filters []string) {
	for _, s := range storedFilters(t, subjects) {
		tokens := splitTokens(s)
		for i, token := range tokens {
			if partitionToken(token) > 0 {
				tokens[i] = "*"
			}
		}
		s = strings.Join(tokens, ".")
		for i := 0; i < len(filters); i++ {
			if overlap(filters[i], s) {
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
func mapped(source, destination, s string) string {
	tokens := splitTokens(destination)
	for i, token := range tokens {
		switch {
		case token == ">":
			given, from := strings.Split(s, "."), strings.Count(source, ".")
			if from < len(given) {
				return strings.Join(append(tokens[:i:i], given[from:]...), ".")
			}
			return strings.Join(tokens, ".") // s ends earlier with a wildcard
		case strings.HasPrefix(token, "$"), strings.HasPrefix(token, "{{") && partitionToken(token) == 0:
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}

// splitTokens splits a destination at its dots, except between braces.
func splitTokens(destination string) (tokens []string) {
	depth, from := 0, 0
	for i, c := range destination {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == '.' && depth == 0:
			tokens = append(tokens, destination[from:i])
			from = i + 1
		}
	}
	return append(tokens, destination[from:])
}

// overlap does the same as wildcard.Overlap for filters that may contain a partition token of a transform.
func overlap(a, b string) bool {
	return wildcard.OverlapTokens(splitTokens(a), splitTokens(b), func(x, y string) bool {
		return wildcard.Meet(x, y) || isPartition(x, y) || isPartition(y, x)
	})
}

// isPartition reports whether token is a partition number that the token transform can produce.
func isPartition(transform, token string) bool {
	number, err := strconv.Atoi(token)
	return err == nil && number >= 0 && number < partitionToken(transform)
}
