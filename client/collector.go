package client

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// ErrIncomplete is the error that Collector.Add wraps if parts of a result are missing. Either the program began to read in the middle
// of the result, or the Collector dropped parts because Collector.Max was reached.
var ErrIncomplete = errors.New("the result is incomplete")

// DefaultMax is the default of Collector.Max.
const DefaultMax = 4096

// Collector assembles results that consist of several messages. M is the type of a message in your NATS client. Messages must arrive in
// the order of their stream, but messages of different results may be interleaved. The zero value is ready for use, by one goroutine at
// a time.
//
// If a worker ends while it stores a result, the next worker may cut the result into other parts. This happens if the server's
// max_payload was changed, for example. Then the parts of the first cut stay in the stream. A Collector returns only the result whose
// last part was stored. The stream has one last part for each input.
type Collector[M any] struct {
	// Max is the maximum number of messages that the Collector keeps. At this limit, the Collector drops all parts of the input with the
	// oldest kept part. The result of that input nearly always lacks its last part. Max must be larger than the number of parts of all
	// results that your workers store at the same time. 0 means DefaultMax.
	Max int

	kept []place[M] // parts of results whose last part hasn't arrived, oldest first
}

// place is a message and its position in a result.
type place[M any] struct {
	input   Input
	cut     string // value of HeaderCut
	part    Part
	first   uint64 // index in the frame of the message's first record; 0 in the first part, even if a filter left out record 0
	records string // number of records of the whole result
	message M
}

// Add returns all messages of a result in order if m is the last part or the only message. Otherwise it keeps m and returns nil. header
// has the headers of m. The error wraps ErrIncomplete if parts are missing. Add ignores messages that InputOf doesn't accept. Don't pass
// dead letters, which have HeaderReason.
func (c *Collector[M]) Add(header map[string][]string, m M) (result []M, err error) {
	input, ok := InputOf(header)
	if !ok {
		return nil, nil
	}
	p := place[M]{input: input, cut: first(header, HeaderCut), records: first(header, HeaderRecords), message: m}
	if p.part, err = ParsePart(first(header, HeaderPart)); err != nil {
		return nil, err
	}
	if p.part.Count == 1 {
		c.drop(input)
		return []M{m}, nil
	}
	if p.first, err = strconv.ParseUint(first(header, HeaderFirstRecord), 10, 64); err != nil {
		return nil, fmt.Errorf("%s is %q: want a number", HeaderFirstRecord, first(header, HeaderFirstRecord))
	}
	parts := c.partsOf(input, p.cut)
	if p.part.Index == p.part.Count {
		c.drop(input)
		return complete(input, append(parts, p))
	}
	if slices.ContainsFunc(parts, func(other place[M]) bool { return other.part == p.part }) {
		return nil, nil // the part was stored twice
	}
	for limit := cmp.Or(max(c.Max, 0), DefaultMax); len(c.kept) >= limit; {
		c.drop(c.kept[0].input)
	}
	c.kept = append(c.kept, p)
	return nil, nil
}

// partsOf returns the kept parts of one cut of an input's result.
func (c *Collector[M]) partsOf(input Input, cut string) (parts []place[M]) {
	for _, p := range c.kept {
		if p.input == input && p.cut == cut {
			parts = append(parts, p)
		}
	}
	return parts
}

// drop removes all parts of an input.
func (c *Collector[M]) drop(input Input) {
	c.kept = slices.DeleteFunc(c.kept, func(p place[M]) bool { return p.input == input })
}

// complete returns the messages in order. It returns an error if a part is missing, or if the records of the parts
// aren't in order.
func complete[M any](input Input, parts []place[M]) ([]M, error) {
	slices.SortFunc(parts, func(a, b place[M]) int { return a.part.Index - b.part.Index })
	last := parts[len(parts)-1]
	result := make([]M, len(parts))
	for i, p := range parts {
		if p.part != (Part{Index: i + 1, Count: last.part.Count}) {
			return nil, fmt.Errorf("%w: input %d of %s: part %d of %d is missing", ErrIncomplete, input.Sequence, input.Stream, i+1, last.part.Count)
		}
		if (i == 0) != (p.first == 0) || i > 0 && p.first <= parts[i-1].first || p.records != last.records {
			return nil, fmt.Errorf("input %d of %s: part %v begins with record %d of %s, which doesn't fit the parts around it",
				input.Sequence, input.Stream, p.part, p.first, p.records)
		}
		result[i] = p.message
	}
	return result, nil
}
