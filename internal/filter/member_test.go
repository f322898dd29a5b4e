package filter

import (
	"fmt"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"

	"millrace/internal/operator"
)

// TestMembersAreReadAsByCEL compares decisions and errors with the results of CEL's own programs.
func TestMembersAreReadAsByCEL(t *testing.T) {
	c := newCounters(t)
	for _, expression := range []string{
		"counters.words >= 50", "counters.words > counters.chars", "counters.large > 5", "counters.small < 0 || counters.share > 0.4",
		"counters.k == 7 && record.number == 17", "counters.digest == 'ab0001'", "counters.text + counters.second != b'hi'", "counters.numbers[0] == -1",
		"has(counters.words) && has(record.bytes)", "(counters.words > 50 ? counters.chars : counters.words) > 60", "record.bytes / (counters.words - 100) > 1",
		"[1, 2].exists(counters, counters == 2)", "[1, 2].all(i, counters.words > i)", "[{'words': 3}].exists(counters, counters.words == 3)",
		"[counters].exists(record, record.words == 100)", "fields['doc.date'].n.exists(record, record.bytes == 1)", "dyn(counters.words)[0] == 1", "dyn(record).bytes == 9", "type(counters.words) == int",
		"counters.words in [10, 100]", "size(counters.digest) == 6 && counters.digest.startsWith('ab')", "string(counters.words) == '100'",
		"minhash.signature.all(a, a > counters.small && minhash.k == 24)", "(true ? counters : counters).words == 100", "crc32c != 'e3069283'",
	} {
		f, err := New(expression, opsOf(t, c), keptNames)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		for _, words := range []uint32{0, 10, 100, 1 << 31} {
			_, r := row(t, c, words, 60)
			keep, _, err := f.Keep(Stateless, r)
			wantKeep, want := keptByCEL(t, f, expression, r)
			if keep != wantKeep || (err == nil) != (want == "") || err != nil && !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s with %d words is %t, error %v; CEL gives %t, error %q", expression, words, keep, err, wantKeep, want)
			}
		}
	}
}

func opsOf(t *testing.T, c counters) []operator.Operator { ops, _ := row(t, c, 0, 0); return ops }

// keptByCEL evaluates a whole expression in one program without direct members. fault is the text of the error, or empty if there is no
// error.
func keptByCEL(t *testing.T, f *Filter, expression string, r *Row) (keep bool, fault string) {
	t.Helper()
	env, err := f.variables.environment()
	if err != nil {
		t.Fatal(err)
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(checked, cel.CostLimit(costLimit))
	if err != nil {
		t.Fatal(err)
	}
	r.variables, r.fields = f.variables, nil
	value, _, err := program.Eval((*activation)(r))
	if err != nil {
		return false, oneLine(err.Error())
	}
	return value.Value().(bool), ""
}

// TestCostsAreCountedPerCondition: each condition may use most of the limit, even if the compiler knows its cost.
func TestCostsAreCountedPerCondition(t *testing.T) {
	c := newCounters(t)
	ops, r := row(t, c, 100, 600)
	nested := func(list string) string {
		e := "a + b + c + d + e + f + g >= 0"
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			e = fmt.Sprintf("%s.all(%s, %s)", list, name, e)
		}
		return e
	}
	unknown, known := nested("minhash.signature"), nested("[0, 1, 2]")
	for expression, want := range map[string]string{
		unknown + " && " + known + " && " + unknown:          "",
		fmt.Sprintf("minhash.signature.all(z, %s)", unknown): "cost limit exceeded",
	} {
		f, err := New(expression, ops, keptNames)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.conditions) == 3 && (!f.conditions[0].limited || f.conditions[1].limited) {
			t.Error("the cost is counted for a list of known size, or isn't counted for a list of unknown size")
		}
		keep, _, err := f.Keep(Stateless, r)
		if keep != (want == "") || (err == nil) != keep || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.30s... with %d conditions is %t, error %v, want %q", expression, f.Len(), keep, err, want)
		}
	}
}
