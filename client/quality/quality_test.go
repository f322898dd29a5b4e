package quality_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"millrace/client/quality"
)

// known are texts with their counters, and the scores and decisions that Curator and datatrove compute. keep and drop are nil if the
// filter raises an exception.
type known struct {
	Texts map[string]struct {
		Counters quality.Counters
		Scores   map[string]struct {
			Value  *float64
			Keep   *bool
			Drop   json.RawMessage
			Raises string
		}
	}
}

func readKnown(t *testing.T) (k known) {
	t.Helper()
	file, err := os.ReadFile("testdata/known.json")
	if err == nil {
		err = json.Unmarshal(file, &k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestFiltersDecideAsCurator compares each score, bit for bit, and each decision.
func TestFiltersDecideAsCurator(t *testing.T) {
	compared := 0
	for name, text := range readKnown(t).Texts {
		filters := append(quality.CuratorEnglish(), quality.PornographicUrls())
		for _, f := range filters {
			if f.Missing != "" {
				continue
			}
			want, ok := text.Scores[f.Name]
			if !ok {
				t.Fatalf("%s: no score of %s", name, f.Name)
			}
			outcome := quality.Raises
			if want.Keep != nil && *want.Keep {
				outcome = quality.Keep
			} else if want.Keep != nil {
				outcome = quality.Drop
			}
			compareScore(t, name, f, text.Counters, want.Value, outcome)
			compared++
		}
	}
	if compared != 22*26 {
		t.Errorf("%d scores compared, want the scores of 26 filters and 22 texts", compared)
	}
}

// compareScore compares a score and a decision. want is nil if the filter raises an exception.
func compareScore(t *testing.T, text string, f quality.Filter, c quality.Counters, want *float64, outcome quality.Outcome) {
	t.Helper()
	score, ok := f.Score(c)
	if ok != (want != nil) || ok && score != *want {
		t.Errorf("%s: score of %s is %v, %v", text, f.Name, score, ok)
	}
	if got := f.Decide(c); got != outcome {
		t.Errorf("%s: %s decides %v, want %v", text, f.Name, got, outcome)
	}
}

func TestConditionsDecideAsDatatrove(t *testing.T) {
	compared := 0
	for name, text := range readKnown(t).Texts {
		for _, f := range quality.Datatrove() {
			key := "datatrove/" + strings.Replace(strings.Replace(f.Name, "FineWebQualityFilter", "FineWeb", 1), "Filter", "", 1)
			_, isEmpty := text.Scores["datatrove/FineWeb"]
			if strings.HasSuffix(key, ".empty") {
				if dropped := f.Decide(text.Counters) == quality.Drop; dropped != isEmpty {
					t.Errorf("%s: %s drops: %v, want %v", name, f.Name, dropped, isEmpty)
				}
				continue
			}
			want, ok := text.Scores[key]
			if !ok {
				if !isEmpty || !strings.Contains(key, "FineWeb") {
					t.Fatalf("%s: no score of %s", name, key)
				}
				continue // FineWeb doesn't reach its other conditions
			}
			outcome := map[string]quality.Outcome{"true": quality.Drop, "false": quality.Keep, "null": quality.Raises}[string(want.Drop)]
			compareScore(t, name, f, text.Counters, want.Value, outcome)
			compared++
		}
	}
	if compared < 22*9 {
		t.Errorf("%d scores compared, want at least %d", compared, 22*9)
	}
}

// TestCuratorEnglishHas25Of28Filters checks that 3 of 28 filters are missing, and that 9 have no score without the counters of n-grams.
func TestCuratorEnglishHas25Of28Filters(t *testing.T) {
	all := readKnown(t).Texts["12_ngrams"].Counters
	names, missing, missingWithout := map[string]bool{}, 0, 0
	for _, f := range quality.CuratorEnglish() {
		names[f.Name] = true
		if f.Decide(all) == quality.Unknown {
			missing++
		}
		outcome := f.Decide(all[:quality.Duplicate5GramChars])
		if outcome == quality.Unknown {
			missingWithout++
		}
		if _, ok := f.Score(all[:quality.Duplicate5GramChars]); ok != (outcome != quality.Unknown) {
			t.Errorf("%s decides %v, and has a score: %v", f.Name, outcome, ok)
		}
	}
	if len(names) != 28 || missing != 3 || missingWithout != 9 {
		t.Errorf("%d filters, of which %d are missing, and %d without n-grams, want 28, 3 and 9", len(names), missing, missingWithout)
	}
}

// TestDecideNeedsNoNGrams checks that, without the counters of n-grams, Decide keeps a text that only a filter of n-grams drops.
func TestDecideNeedsNoNGrams(t *testing.T) {
	c := make(quality.Counters, quality.NumCounters)
	copy(c, good)
	c[quality.Duplicate6GramChars] = 141
	if outcome, f := quality.Decide(quality.CuratorEnglish(), c); outcome != quality.Drop || f.Name != "RepeatingDuplicateNGramsFilter n=6" {
		t.Errorf("with n-grams: %v by %+v", outcome, f)
	}
	if outcome, f := quality.Decide(quality.CuratorEnglish(), c[:quality.Duplicate5GramChars]); outcome != quality.Keep || f != nil {
		t.Errorf("without n-grams: %v by %+v", outcome, f)
	}
}

// good are the counters of a text that Curator keeps.
var good = quality.Counters{quality.Chars: 1000, quality.AlnumChars: 990, quality.Words: 100, quality.WordChars: 500, quality.AlphaWords: 100,
	quality.CommonWords: 9, quality.Lines: 1, quality.LineChars: 1000, quality.EndmarkLines: 1, quality.Paragraphs: 1, quality.GrRepeatedLineChars: 0}

// TestDecideEndsAtTheFirstFilter uses a text of newlines. It passes the first filter, and the second filter divides by the number of words.
func TestDecideEndsAtTheFirstFilter(t *testing.T) {
	texts := readKnown(t).Texts
	for name, want := range map[string]struct {
		outcome quality.Outcome
		filter  string
	}{
		"01_empty": {quality.Drop, "NonAlphaNumericFilter"}, "13_only_newlines": {quality.Raises, "SymbolsToWordsFilter"},
	} {
		c := texts[name].Counters
		if outcome, f := quality.Decide(quality.CuratorEnglish(), c); outcome != want.outcome || f == nil || f.Name != want.filter {
			t.Errorf("%s: %v by %+v, want %v by %s", name, outcome, f, want.outcome, want.filter)
		}
	}
	if outcome, f := quality.Decide(quality.CuratorEnglish(), good); outcome != quality.Keep || f != nil {
		t.Errorf("a good text: %v by %+v", outcome, f)
	}
}

func TestSumsAreExpressions(t *testing.T) {
	for want, sum := range map[string]quality.Sum{
		"chars - 2*paragraphs + 2": {{1, quality.Chars}, {-2, quality.Paragraphs}, {2, quality.One}},
		"-words":                   {{-1, quality.Words}},
		"":                         nil,
	} {
		if got := sum.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCountersOfOtherOperatorsAreRefused(t *testing.T) {
	for _, value := range []string{`{"chars":1}`, `{"k":24}`, `[]`, `"e3069283"`} {
		var c quality.Counters
		if err := json.Unmarshal([]byte(value), &c); err == nil {
			t.Errorf("%s gives %v", value, c)
		}
	}
}
