package telemetry_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"millrace/internal/ingest/inflight"
	"millrace/internal/operator"
	"millrace/internal/telemetry"
)

// TestFaultsOfOperatorsAreCounted: faults that earlier processes observed aren't counted. Their times are reported, but each time
// only once.
func TestFaultsOfOperatorsAreCounted(t *testing.T) {
	m := telemetry.NewMetrics(build)
	m.AddOperators([]string{"crc32c", "minhash"})
	m.AddOperators([]string{"crc32c"}) // for another device
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	for _, f := range []inflight.OperatorFault{
		{Operator: "minhash", Fault: operator.FaultDevice, At: at(100), Earlier: true},
		{Operator: "minhash", Fault: operator.FaultDevice, At: at(300)},
		{Operator: "minhash", Fault: operator.FaultDevice, At: at(100), Earlier: true}, // from another partition's consumer
		{Operator: "crc32c", Fault: operator.FaultInvalidResult, At: at(1)},
		{Operator: "stranger", Fault: operator.FaultDevice, At: at(1)},
		{Operator: "crc32c", Fault: "something", At: at(1)},
	} {
		m.OperatorFault(f)
	}
	third := func() map[string]float64 {
		values := map[string]float64{}
		for _, s := range gather(t, m)["millrace_operator_third_last_fault_timestamp_seconds"].samples {
			values[s.labels[0].value] = s.value
		}
		return values
	}
	if got := third(); len(got) != 2 || got["minhash"] != 0 || got["crc32c"] != 0 {
		t.Errorf("after two faults: %v", got)
	}
	m.OperatorFault(inflight.OperatorFault{Operator: "minhash", Fault: operator.FaultDeadline, At: at(200), Earlier: true})
	if got := third(); got["minhash"] != 100 {
		t.Errorf("after three faults: %v, want the time of the first", got)
	}
	m.OperatorFault(inflight.OperatorFault{Operator: "minhash", Fault: operator.FaultDevice, At: at(400)})
	if got := third(); got["minhash"] != 200 {
		t.Errorf("after four faults: %v, want the time of the second", got)
	}
	counts := map[string]float64{}
	for _, s := range gather(t, m)["millrace_operator_faults_total"].samples {
		counts[s.labels[1].value+" "+s.labels[0].value] = s.value
	}
	if len(counts) != 2*len(operator.Faults()) || counts["minhash device"] != 2 || counts["minhash deadline"] != 0 || counts["crc32c invalid_result"] != 1 {
		t.Errorf("counts %v", counts)
	}
}

// TestConditionsOfAFilterAreBounded checks that a filter of any length creates few and short series.
func TestConditionsOfAFilterAreBounded(t *testing.T) {
	m := telemetry.NewMetrics(build)
	conditions := make([]string, 200)
	for i := range conditions {
		conditions[i] = strings.Repeat("é", 100) + strconv.Itoa(i)
	}
	conditions[0], conditions[1] = "a > 1", "b > 1"
	m.AddFilter(conditions)
	m.Frame(inflight.FrameStats{LeftOut: slices.Repeat([]int{1}, len(conditions)+1)})
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "millrace_records_filtered_total" {
			continue
		}
		sum := 0.0
		for _, series := range f.GetMetric() {
			sum += series.GetCounter().GetValue()
			if text := series.GetLabel()[0].GetValue(); len(text) > 110 || !utf8.ValidString(text) {
				t.Errorf("the label %q is too long or isn't valid text", text)
			}
		}
		if n := len(f.GetMetric()); n > 60 || n < 4 || sum != 201 {
			t.Errorf("%d series count %v records, want 201", n, sum)
		}
		return
	}
	t.Error("no records are counted")
}
