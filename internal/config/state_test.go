package config_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"millrace/internal/config"
	"millrace/internal/operator"
	"millrace/internal/operator/neardup"
)

// statefulOperator is a stateful operator that uses the kernel of another operator.
type statefulOperator struct {
	operator.Operator
	name string
}

func (s statefulOperator) Name() string { return s.name }

func (s statefulOperator) Kernel() operator.Operator { return s.Operator }

// Err implements operator.Source.
func (s statefulOperator) Err() error { return nil }

// Bind implements operator.Source.
func (s statefulOperator) Bind(string) (operator.Operator, error) { return s, nil }

// findStateful is a config.Finder with two stateful operators: first and second.
func findStateful(*config.Config) ([]operator.Source, error) {
	kernel, err := operator.Parse("minhash")
	if err != nil {
		return nil, err
	}
	return []operator.Source{statefulOperator{kernel, "first"}, statefulOperator{kernel, "second"}}, nil
}

// loadStateful loads a configuration with pairs such as DELIVERY=exclusive, separated by spaces.
func loadStateful(t *testing.T, env string) (*config.Config, error) {
	t.Helper()
	for pair := range strings.FieldsSeq(env) {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv("MILLRACE_"+name, value)
	}
	return config.Load(findStateful)
}

func TestStatefulOperatorNeedsOrderAndCommits(t *testing.T) {
	for env, want := range map[string][]string{
		"OPERATORS=crc32c,first DELIVERY=exclusive":                nil,
		"OPERATORS=first DELIVERY=exclusive EXACTLY_ONCE=required": nil,
		"OPERATORS=first": {`MILLRACE_DELIVERY="shared": results of operator first depend on the order of the records, which shared delivery doesn't keep; set exclusive`},
		"OPERATORS=first DELIVERY=exclusive EXACTLY_ONCE=off":              {`MILLRACE_EXACTLY_ONCE="off": the state of operator first is stored with the commit markers of exactly once; set auto or required`},
		"OPERATORS=first,second EXACTLY_ONCE=off":                          {`MILLRACE_DELIVERY`, `MILLRACE_EXACTLY_ONCE`, `MILLRACE_OPERATORS="first,second": first and second are stateful operators; name only one`},
		"OPERATORS=first DELIVERY=exclusive STATE_RECORDS=0":               {"MILLRACE_STATE_RECORDS=\"0\": less than 1"},
		"OPERATORS=first DELIVERY=exclusive STATE_LOST=wait STATE_BYTES=x": {"MILLRACE_STATE_BYTES", "MILLRACE_STATE_LOST=\"wait\": not a known word; set stop or begin"},
	} {
		t.Run(env, func(t *testing.T) {
			_, err := loadStateful(t, env)
			var problems []config.Problem
			if bad := new(config.Error); errors.As(err, &bad) {
				problems = bad.Problems
			}
			if len(problems) != len(want) {
				t.Fatalf("%d problems, want %d: %v", len(problems), len(want), err)
			}
			for i, p := range problems {
				if !strings.Contains(p.String(), want[i]) {
					t.Errorf("problem %s, want %s", p, want[i])
				}
			}
		})
	}
}

func TestSettingsOfStatesNeedAStatefulOperator(t *testing.T) {
	const settings = " STATE_RECORDS=5 STATE_LOST=begin"
	isOfStates := func(warning string) bool { return strings.HasPrefix(warning, "MILLRACE_STATE_") }
	c, err := loadStateful(t, "OPERATORS=first DELIVERY=exclusive"+settings)
	if err != nil || slices.ContainsFunc(c.Warnings(), isOfStates) || c.Stateful() == nil || c.Stateful().Name() != "first" {
		t.Errorf("stateful operator %v with warnings %q and error %v", c.Stateful(), c.Warnings(), err)
	}
	c, err = loadStateful(t, "OPERATORS=minhash"+settings)
	if err != nil || c.Stateful() != nil {
		t.Errorf("without a stateful operator: %v, error %v", c.Stateful(), err)
	}
	for _, variable := range []string{"MILLRACE_STATE_RECORDS", "MILLRACE_STATE_LOST"} {
		if !slices.ContainsFunc(c.Warnings(), func(w string) bool { return strings.HasPrefix(w, variable+" has no effect") }) {
			t.Errorf("no warning about %s in %q", variable, c.Warnings())
		}
	}
}

func TestLimitOfRecordsIsTheIndexes(t *testing.T) {
	variables := (&config.Config{}).Variables()
	i := slices.IndexFunc(variables, func(v config.Variable) bool { return v.Name == "MILLRACE_STATE_RECORDS" })
	const largest = "a whole number from 1 to 1073741824"
	if variables[i].Form != largest || neardup.MaxRecords != 1<<30 {
		t.Errorf("MILLRACE_STATE_RECORDS is %s, and an index takes up to %d", variables[i].Form, neardup.MaxRecords)
	}
}
