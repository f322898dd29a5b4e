package quality_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"millrace/client"
	"millrace/client/arrow"
	"millrace/client/quality"
	"millrace/internal/operator"
)

// results returns the results of a text in each format, as the worker publishes them.
func results(text string) map[operator.Format][]byte {
	ops, err := operator.ParseList("crc32c,quality")
	if err != nil {
		panic(err)
	}
	var values [][]byte
	for _, op := range ops {
		values = append(values, op.AppendReference(nil, []byte(text)))
	}
	bodies := map[operator.Format][]byte{}
	for _, f := range []operator.Format{operator.JSON, operator.Binary, operator.Arrow} {
		bodies[f] = f.Append(nil, ops, len(text), values)
	}
	return bodies
}

// Example decides from a JSON result whether Curator's pipeline for English would keep a text.
func Example() {
	body := results("Read more...\nRead more...\n")[operator.JSON]
	for line, err := range client.Lines(body) {
		var counters quality.Counters
		if err == nil {
			err = json.Unmarshal(line.Values["quality"], &counters)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		outcome, filter := quality.Decide(quality.CuratorEnglish(), counters)
		score, _ := filter.Score(counters)
		fmt.Println(counters[quality.Words], "words:", outcome, "by", filter.Name, "with the score", score)
	}
	// Output:
	// 4 words: drop by RepeatedLinesFilter with the score 0.5
}

// ExampleCounters reads the counters of binary and Arrow results.
func ExampleCounters() {
	bodies := results("Three words here.")
	binary, err := client.Decode(bodies[operator.Binary])
	if err != nil {
		fmt.Println(err)
		return
	}
	columns, err := arrow.Decode(bodies[operator.Arrow])
	if err != nil {
		fmt.Println(err)
		return
	}
	var first, second quality.Counters
	first = binary.Record(0).AppendUint32s(first, binary.Operator("quality"))
	second = columns.AppendUint32s(second, "quality", 0)
	fmt.Println(first[quality.Words], second[quality.Words], slices.Equal(first, second))
	// Output:
	// 3 3 true
}

// TestAppendUint32sAppendsTheOperatorsColumns checks that columns of other operators are left out.
func TestAppendUint32sAppendsTheOperatorsColumns(t *testing.T) {
	columns, err := arrow.Decode(results("text")[operator.Arrow])
	if err != nil {
		t.Fatal(err)
	}
	if got := columns.AppendUint32s(nil, "minhash", 0); len(got) != 0 {
		t.Errorf("an operator that isn't in the result has %v", got)
	}
	if got := len(columns.AppendUint32s([]uint32{7}, "quality", 0)); got != 1+int(quality.Duplicate5GramChars) {
		t.Errorf("%d numbers, want one more than %d", got, quality.Duplicate5GramChars)
	}
}
