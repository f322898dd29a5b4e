package filter

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"millrace/client/quality"
)

// presetPrefix precedes the name of a preset, which can replace an expression.
const presetPrefix = "preset:"

// presets are the known lists of filters over the counters of the operator quality.
var presets = map[string]func() []quality.Filter{"curator-english": quality.CuratorEnglish}

// part is a condition with its name.
type part struct{ name, text string }

// preset returns a condition for each filter of a preset. missing lists the filters whose counters don't exist, with the reasons. hasNGrams
// reports whether the operator counts duplicate n-grams.
func preset(name string, hasNGrams bool) (parts []part, missing []string, err error) {
	filters, ok := presets[name]
	if !ok {
		return nil, nil, fmt.Errorf("unknown preset %q: known are %s", name, strings.Join(slices.Sorted(maps.Keys(presets)), ", "))
	}
	for _, f := range filters() {
		switch {
		case f.Missing != "":
			missing = append(missing, f.Name+": "+f.Missing)
		case f.NeedsNGrams() && !hasNGrams:
			missing = append(missing, f.Name+": the operator counts duplicate n-grams only with quality?ngrams=true")
		default:
			parts = append(parts, part{f.Name, conditionOf(&f)})
		}
	}
	return parts, missing, nil
}

// conditionOf returns a filter as a condition, which is false where the original filter raises an exception.
func conditionOf(f *quality.Filter) string {
	const one = "1.0"
	score := sum(f.Numerator)
	if f.Cap > 0 {
		score = fmt.Sprintf("(%s < %d ? %s : %d)", score, f.Cap, score, f.Cap)
	}
	text := within(score, f)
	if f.Denominator != nil {
		empty := "false"
		if f.IsOneIfEmpty {
			empty = within(one, f)
		}
		ratio := fmt.Sprintf("double(%s) / double(%s)", score, sum(f.Denominator))
		text = fmt.Sprintf("(%s == 0 ? %s : %s)", sum(f.Denominator), empty, within(ratio, f))
	}
	if f.OneIf != nil {
		text = fmt.Sprintf("(%s != 0 ? %s : %s)", sum(f.OneIf), within(one, f), text)
	}
	if f.MinWords > 0 {
		text = fmt.Sprintf("(quality.%v < %d ? %s : %s)", quality.Words, f.MinWords, within(one, f), text)
	}
	if f.Requires != nil {
		text = fmt.Sprintf("%s != 0 && %s", sum(f.Requires), text)
	}
	return text
}

// within returns the condition that a score is within the limits of a filter.
func within(score string, f *quality.Filter) string {
	var all []string
	if f.Min > 0 {
		all = append(all, score+" >= "+strconv.FormatFloat(f.Min, 'f', -1, 64))
	}
	if !math.IsInf(f.Max, 1) {
		all = append(all, score+" <= "+strconv.FormatFloat(f.Max, 'f', -1, 64))
	}
	return strings.Join(all, " && ")
}

// sum returns a sum of counters as an expression.
func sum(s quality.Sum) string {
	var terms []string
	for _, t := range s {
		switch {
		case t.Counter == quality.One:
			terms = append(terms, strconv.FormatInt(t.Factor, 10))
		case t.Factor == 1:
			terms = append(terms, fmt.Sprintf("quality.%v", t.Counter))
		default:
			terms = append(terms, fmt.Sprintf("%d * quality.%v", t.Factor, t.Counter))
		}
	}
	if len(terms) == 1 {
		return terms[0]
	}
	return "(" + strings.Join(terms, " + ") + ")"
}
