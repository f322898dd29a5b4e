package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"millrace/client"
)

// part returns the headers of a part. at is its position, such as "2/3". first is its first record. cut is its cut ID.
func part(sequence int, at, first, cut string) map[string][]string {
	h := map[string][]string{client.HeaderStream: {"IN"}, client.HeaderSequence: {fmt.Sprint(sequence)}, client.HeaderRecords: {"90"}}
	if at != "" {
		h[client.HeaderPart], h[client.HeaderFirstRecord], h[client.HeaderCut] = []string{at}, []string{first}, []string{cut}
	}
	return h
}

func TestCollectorReturnsEachResultOnce(t *testing.T) {
	var c client.Collector[string]
	for i, step := range []struct {
		sequence       int
		at, first, cut string
		want           string // messages of the result that this message completes
	}{
		{1, "1/3", "0", "a", ""},
		{2, "1/2", "0", "b", ""},
		{3, "", "", "", "2"},
		{1, "2/3", "10", "a", ""},
		{1, "2/3", "10", "a", ""}, // stored twice
		{2, "2/2", "10", "b", "1 5"},
		{1, "1/2", "0", "c", ""}, // another worker divides the result differently
		{1, "2/2", "40", "c", "6 7"},
		{4, "1/2", "0", "d", ""},
		{4, "", "", "", "9"}, // another worker stores the result in one message
		{5, "1/2", "0", "", ""},
		{5, "2/2", "20", "", "10 11"}, // stored by a worker that doesn't name cuts
		{6, "1/2", "0", "e", ""},
		{6, "2/2", "7000", "e", "12 13"}, // a filter leaves out most of more than 7000 records
	} {
		got, err := c.Add(part(step.sequence, step.at, step.first, step.cut), fmt.Sprint(i))
		if err != nil || strings.Join(got, " ") != step.want {
			t.Errorf("message %d completes %q, %v, want %q", i, got, err, step.want)
		}
	}
}

func TestCollectorFindsWhatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		headers    []map[string][]string
		want       string
		incomplete bool
	}{
		"the first part is missing":    {[]map[string][]string{part(1, "2/2", "10", "a")}, "part 1 of 2 is missing", true},
		"a part is missing":            {[]map[string][]string{part(1, "1/3", "0", "a"), part(1, "3/3", "20", "a")}, "part 2 of 3 is missing", true},
		"parts of two cuts":            {[]map[string][]string{part(1, "1/2", "0", "a"), part(1, "2/2", "20", "b")}, "part 1 of 2 is missing", true},
		"parts of two inputs":          {[]map[string][]string{part(1, "1/2", "0", "a"), part(2, "2/2", "20", "a")}, "part 1 of 2 is missing", true},
		"records before the last part": {[]map[string][]string{part(1, "1/2", "0", "a"), part(1, "2/2", "0", "a")}, "doesn't fit", false},
		"the first record is missing":  {[]map[string][]string{part(1, "1/2", "5", "a"), part(1, "2/2", "9", "a")}, "doesn't fit", false},
		"no part":                      {[]map[string][]string{part(1, "2", "9", "a")}, "i/n", false},
		"no first record":              {[]map[string][]string{part(1, "1/2", "x", "a")}, client.HeaderFirstRecord, false},
	} {
		var collector client.Collector[int]
		var err error
		for i, h := range c.headers {
			var result []int
			if result, err = collector.Add(h, i); result != nil {
				t.Errorf("%s: message %d completes %v", name, i, result)
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, client.ErrIncomplete) != c.incomplete {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
	}
}

// TestCollectorIsBounded checks that parts without a last part don't fill the memory, and that the newest results are complete.
func TestCollectorIsBounded(t *testing.T) {
	c := client.Collector[int]{Max: 10}
	for i := range 100 {
		if _, err := c.Add(part(i, "1/2", "0", "a"), i); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 100 {
		got, err := c.Add(part(i, "2/2", "5", "a"), 100+i)
		if known := i >= 90; known != slices.Equal(got, []int{i, 100 + i}) || known == errors.Is(err, client.ErrIncomplete) {
			t.Errorf("the result of input %d is %v, %v; the 10 newest are known", i, got, err)
		}
	}
}

// TestCollectorIgnoresMessagesWithoutAnInput covers commit markers and delete markers, which a result stream may contain.
func TestCollectorIgnoresMessagesWithoutAnInput(t *testing.T) {
	var c client.Collector[string]
	for name, header := range map[string]map[string][]string{
		"no headers":      nil,
		"a commit marker": {"Nats-Expected-Last-Subject-Sequence": {"12"}},
		"a delete marker": {"Nats-Marker-Reason": {"MaxAge"}},
		"no number":       {client.HeaderStream: {"IN"}, client.HeaderSequence: {"first"}},
	} {
		if got, err := c.Add(header, name); got != nil || err != nil {
			t.Errorf("%s is the result %q, %v, want none", name, got, err)
		}
		if in, ok := client.InputOf(header); ok {
			t.Errorf("%s is of input %v", name, in)
		}
	}
	if in, ok := client.InputOf(part(7, "", "", "")); !ok || in != (client.Input{Stream: "IN", Sequence: 7}) {
		t.Errorf("the result of input 7 is of %v, %v", in, ok)
	}
}
