package filter

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace/client/quality"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
)

// counters is an operator whose result has a field of each kind.
type counters struct {
	operator.Operator
	declared *compiled.Operator
}

func (c counters) Name() string                    { return c.declared.Name() }
func (c counters) Declaration() *compiled.Operator { return c.declared }

func newCounters(t testing.TB) counters {
	t.Helper()
	field := func(name string, kind compiled.Type) compiled.Field {
		return compiled.Field{Name: name, Type: kind, Count: 1, CountParameter: -1}
	}
	array := field("numbers", compiled.Int16)
	array.Array, array.Count = true, 2
	digest := field("digest", compiled.Uint8)
	digest.Array, digest.Hex, digest.Count = true, true, 3
	text := field("text", compiled.Bytes)
	text.MaxBytes = 10
	second := field("second", compiled.Bytes)
	second.MaxBytes = 10
	d := compiled.Description{
		Name: "counters", Version: 1, Form: compiled.Thread, Threads: 32, Teams: 1,
		Parameters: []compiled.Parameter{{Name: "k", Type: compiled.Uint32, Shown: true, Default: 7, Max: 9}},
		Fields: []compiled.Field{
			field("words", compiled.Uint32), field("chars", compiled.Uint32), field("large", compiled.Uint64), field("small", compiled.Int8),
			field("share", compiled.Float64), array, digest, text, second,
		},
	}
	o, err := d.Bind("")
	if err != nil {
		t.Fatal(err)
	}
	return counters{declared: o}
}

// value returns a value of counters.
func (c counters) value(words, chars uint32) []byte {
	v := make([]byte, c.declared.Stride())
	put := func(field int, bytes ...byte) {
		at, _ := c.declared.Place(field)
		copy(v[at:], bytes)
	}
	put(0, byte(words), byte(words>>8), byte(words>>16), byte(words>>24))
	put(1, byte(chars), byte(chars>>8), byte(chars>>16), byte(chars>>24))
	put(2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	put(3, 0xfe)
	put(4, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f)
	put(5, 0xff, 0xff, 3, 0)
	put(6, 0xab, 0, 1)
	put(7, 2)
	put(8, 3)
	return append(v, "hi\x00yo"...)
}

// row returns a record with a checksum, the counters, and the kept fields id, lang and doc.date.
func row(t testing.TB, c counters, words, chars uint32) ([]operator.Operator, *Row) {
	t.Helper()
	ops, err := operator.ParseList("crc32c,minhash?hashes=3")
	if err != nil {
		t.Fatal(err)
	}
	ops = append(ops, c)
	kept := []string{`"a\u0031"`, `"en"`, "", `{"year":2024,"n":[1.5,9007199254740993,1e400]}`}
	text := []byte("123456789")
	return ops, &Row{
		Number: 17, Bytes: 9, SourceBytes: 90,
		Values: [][]byte{ops[0].AppendReference(nil, text), ops[1].AppendReference(nil, text), c.value(words, chars)},
		Kept: func(i int) []byte {
			if kept[i] == "" {
				return nil
			}
			return []byte(kept[i])
		},
	}
}

var keptNames = []string{"id", "lang", "url", "doc.date"}

// TestNoOperatorDoublesAVariable checks that no operator can have the name of another variable.
func TestNoOperatorDoublesAVariable(t *testing.T) {
	for _, name := range []string{recordName, fieldsName} {
		if compiled.CheckName(name) == nil {
			t.Errorf("an operator with the name %s was accepted", name)
		}
	}
}

// TestVariables checks the value of each kind of variable.
func TestVariables(t *testing.T) {
	c := newCounters(t)
	ops, r := row(t, c, 100, 600)
	for _, condition := range []string{
		`crc32c == "e3069283"`, `minhash.k == 24 && size(minhash.signature) == 3 && minhash.signature[0] >= 0`,
		`record.number == 17 && record.bytes == 9 && record.source_bytes == 90`,
		`counters.words == 100 && counters.chars == 600 && counters.k == 7`,
		`counters.large == 18446744073709551615u && counters.large > 5 && counters.small == -2 && counters.share == 0.5`,
		`counters.numbers == [-1, 3]`, `counters.digest == "ab0001"`, `counters.text == b"hi" && counters.second == b"\x00yo"`,
		`double(counters.words) / double(counters.chars) < 0.17`,
		`fields.id == "a1" && fields["lang"] == "en"`, `!has(fields.url) && has(fields.lang) && !("url" in fields)`,
		`fields["doc.date"].year >= 2024 && fields["doc.date"].n[0] == 1.5`, `fields["doc.date"].n[1] == 9007199254740993`,
		`record.bytes == 9 || counters.words / 0 == 1`, `minhash.signature.exists(s, s > 0)`,
	} {
		f, err := New(condition, ops, keptNames)
		if err != nil {
			t.Errorf("%s: %v", condition, err)
			continue
		}
		if keep, failed, err := f.Keep(Stateless, r); !keep || failed != -1 || err != nil {
			t.Errorf("%s is %t (condition %d), %v", condition, keep, failed, err)
		}
	}
}

// TestConditions checks that a filter reports the condition that is false, even if an earlier condition can't be evaluated.
func TestConditions(t *testing.T) {
	c := newCounters(t)
	ops, r := row(t, c, 10, 600)
	f, err := New(`record.bytes > 1 && (counters.chars / (counters.words - 10) > 1 && counters.words >= 50) && counters.chars > 5`, ops, keptNames)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"record.bytes > 1", "counters.chars / (counters.words - 10) > 1", "counters.words >= 50", "counters.chars > 5"}
	if got := f.Conditions(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the conditions are %q, want %q", got, want)
	}
	if !f.Uses(1, "counters") || f.Uses(0, "counters") || f.Uses(1, "minhash") {
		t.Error("a condition uses the wrong operators")
	}
	if keep, failed, err := f.Keep(Stateless, r); keep || failed != 2 || err != nil {
		t.Errorf("10 words: %t, condition %d, %v, want condition 2", keep, failed, err)
	}
	r.Values[2] = c.value(60, 600)
	if keep, failed, err := f.Keep(Stateless, r); !keep || failed != -1 || err != nil {
		t.Errorf("60 words: %t, condition %d, %v", keep, failed, err)
	}
}

// TestARowIsUsedAgain: several filters alternately use one Row, whose record changes.
func TestARowIsUsedAgain(t *testing.T) {
	ops, r := row(t, newCounters(t), 1, 1)
	var filters [2]*Filter
	for i, expression := range []string{`fields.id == "7" && record.number > 0`, `record.number / (record.number - 2) >= -1 && fields.id != "7"`} {
		var err error
		if filters[i], err = New(expression, ops, keptNames); err != nil {
			t.Fatal(err)
		}
	}
	for number := range 5 {
		for _, id := range []string{`"7"`, `"8"`} {
			r.Number, r.Kept = number, func(int) []byte { return []byte(id) }
			if keep, _, err := filters[0].Keep(Stateless, r); keep != (id == `"7"` && number > 0) || err != nil {
				t.Errorf("record %d with the id %s: keep is %t, error %v", number, id, keep, err)
			}
			keep, failed, err := filters[1].Keep(Stateless, r)
			if keep != (id == `"8"` && number != 2) || (err != nil) != (id == `"8"` && number == 2) || (failed == 1) != (id == `"7"`) {
				t.Errorf("record %d with the id %s in the second filter: keep is %t, condition %d, error %v", number, id, keep, failed, err)
			}
		}
	}
}

// TestFaults checks the errors of filters that can't be evaluated for a record.
func TestFaults(t *testing.T) {
	c := newCounters(t)
	ops, r := row(t, c, 0, 600)
	for condition, want := range map[string]string{
		`counters.chars / counters.words > 1`: "division by zero",
		`fields.url == "x"`:                   "no such key: url",
		`fields.id > 5`:                       "no such overload",
		`fields["doc.date"].n[2] > 0.0`:       "too large",
		`minhash.signature.all(a, minhash.signature.all(b, minhash.signature.all(c, minhash.signature.all(d, minhash.signature.all(e, minhash.signature.all(f, minhash.signature.all(g, minhash.signature.all(h, minhash.signature.all(i, minhash.signature.all(j, a + b + c + d + e + f + g + h + i + j >= 0))))))))))`: "cost limit exceeded",
	} {
		f, err := New(condition, ops, keptNames)
		if err != nil {
			t.Errorf("%s: %v", condition, err)
			continue
		}
		keep, failed, err := f.Keep(Stateless, r)
		if keep || failed != -1 || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %t, condition %d, error %v, want %q", condition, keep, failed, err, want)
		}
	}
}

// TestMistakes checks that the error for a wrong expression contains the position of the mistake.
func TestMistakes(t *testing.T) {
	ops, _ := row(t, newCounters(t), 1, 1)
	for expression, want := range map[string]string{
		"preset:english":                        "unknown preset \"english\": known are curator-english",
		"preset:curator-english":                "add it to MILLRACE_OPERATORS",
		"":                                      "line 1, column 1: ",
		"counters.words >= ":                    "line 1, column 19: ",
		"counters.wordz >= 50":                  "line 1, column 9: undefined field 'wordz'",
		"quality.words >= 50":                   "undeclared reference to 'quality'",
		"counters.words >= \"50\"":              "line 1, column 16: found no matching overload",
		"counters.words":                        "the expression has the type int: write a condition",
		"record.bytes > 1 &&\nfields.age > 1":   `line 2, column 7: the field "age" isn't kept: add it to MILLRACE_KEEP_FIELDS`,
		`fields["age"] == 1`:                    `the field "age" isn't kept`,
		`has(fields.age)`:                       `the field "age" isn't kept`,
		strings.Repeat("1 + ", 1<<16) + "1 > 0": "limit",
	} {
		f, err := New(expression, ops, keptNames)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q gives %v, %v, want an error with %q", expression, f, err, want)
		}
	}
}

// TestPreset checks that the preset makes the same decisions as the filters of the client package, which agree with Curator's filters.
func TestPreset(t *testing.T) {
	for spec, conditions := range map[string]int{"quality": 19, "quality?ngrams=true": 25} {
		t.Run(spec, func(t *testing.T) {
			ops, err := operator.ParseList(spec)
			if err != nil {
				t.Fatal(err)
			}
			f, err := New("preset:curator-english", ops, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Missing()) != 28-conditions || len(f.Conditions()) != conditions || f.Conditions()[0] != "NonAlphaNumericFilter" {
				t.Errorf("the preset has the conditions %q without %q", f.Conditions(), f.Missing())
			}
			presetDecidesAsTheClient(t, f, ops[0].Stride()/4)
		})
	}
}

// presetDecidesAsTheClient compares the decisions about random counters. number is the number of random records.
func presetDecidesAsTheClient(t *testing.T, f *Filter, number int) {
	t.Helper()
	c := make(quality.Counters, number)
	filters := slices.DeleteFunc(quality.CuratorEnglish(), func(f quality.Filter) bool { return f.Decide(c) == quality.Unknown })
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 0))
		for i := range c {
			c[i] = uint32(random.IntN(1 << random.IntN(12)))
		}
		if !possible(filters, c) {
			continue
		}
		keep, failed, err := f.Keep(Stateless, &Row{Values: [][]byte{valueOfCounters(c)}})
		outcome, by := quality.Decide(filters, c)
		if err != nil || keep != (outcome == quality.Keep) || !keep && f.Conditions()[failed] != by.Name {
			t.Fatalf("%v: %t by condition %d, %v; the client decides %v by %v", c, keep, failed, err, outcome, by)
		}
	}
	for i := range filters { // each condition alone, because few random counters pass the first ones
		for seed := range uint64(2000) {
			random := rand.New(rand.NewPCG(seed, uint64(i+1)))
			for k := range c {
				c[k] = uint32(random.IntN(1 << random.IntN(7)))
			}
			if !possible(filters[i:i+1], c) {
				continue
			}
			if got, want := f.conditions[i].keeps(t, f, c), filters[i].Decide(c) == quality.Keep; got != want {
				t.Fatalf("%s of %v is %t, want %t", f.conditions[i].name, c, got, want)
			}
		}
	}
}

// TestAbsentFieldHasAdvice: an expression may have an optional field only if the operator's parameter is true.
func TestAbsentFieldHasAdvice(t *testing.T) {
	const expression = "quality.duplicate_5gram_chars == 0"
	for spec, want := range map[string]string{
		"quality": "undefined field 'duplicate_5gram_chars': the operator has duplicate_5gram_chars only with quality?ngrams=true", "quality?ngrams=true": "",
	} {
		ops, err := operator.ParseList(spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(expression, ops, nil); (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", spec, err, want)
		}
	}
}

// possible reports whether no score is negative, as for the counters of any text.
func possible(filters []quality.Filter, c quality.Counters) bool {
	return !slices.ContainsFunc(filters, func(f quality.Filter) bool {
		return f.Numerator.Value(c) < 0 || f.Denominator != nil && f.Denominator.Value(c) < 0
	})
}

func valueOfCounters(c quality.Counters) (value []byte) {
	for _, n := range c {
		value = binary.LittleEndian.AppendUint32(value, n)
	}
	return value
}

// keeps evaluates one condition.
func (c *condition) keeps(t *testing.T, f *Filter, counters quality.Counters) bool {
	t.Helper()
	alone := &Filter{variables: f.variables, conditions: []condition{*c}}
	keep, _, err := alone.Keep(Stateless, &Row{Values: [][]byte{valueOfCounters(counters)}})
	if err != nil {
		t.Fatal(err)
	}
	return keep
}

// BenchmarkKeep evaluates six comparisons, all of which are true.
func BenchmarkKeep(b *testing.B) {
	c := newCounters(b)
	ops, r := row(b, c, 100, 600)
	for name, expression := range map[string]string{
		"comparisons": `counters.words >= 50 && counters.words <= 100000 && counters.chars >= 3 && counters.chars < 100000 && record.bytes >= 1 && counters.small < 0`,
		"ratios":      `counters.chars > 0 && double(counters.words) / double(counters.chars) <= 0.25 && double(counters.small) / double(counters.chars) <= 0.1`,
		"fields":      `fields.lang == "en"`,
	} {
		b.Run(name, func(b *testing.B) {
			f, err := New(expression, ops, keptNames)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if keep, _, err := f.Keep(Stateless, r); !keep {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

func Example() {
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		panic(err)
	}
	f, err := New(`record.bytes >= 5 && fields.lang == "en"`, ops, []string{"lang"})
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"hi", "hello"} {
		keep, failed, err := f.Keep(Stateless, &Row{
			Bytes: len(text), Values: [][]byte{ops[0].AppendReference(nil, []byte(text))},
			Kept: func(int) []byte { return []byte(`"en"`) },
		})
		fmt.Println(text, keep, failed, err)
	}
	// Output:
	// hi false 0 <nil>
	// hello true -1 <nil>
}
