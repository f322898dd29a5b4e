package test

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"millrace/internal/config"
)

// bounded is a duration or size of the chart with bounds.
type bounded struct {
	key       string // key of config, for example ackWait
	low, high string // bounds in the worker's declaration
	outside   []string
}

// declared returns the durations and sizes of internal/config, with values outside their bounds.
func declared(t *testing.T) (all []bounded) {
	t.Helper()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		b := bounded{key: keyOf(field.Name), low: field.Tag.Get("min"), high: field.Tag.Get("max")}
		switch field.Type {
		case reflect.TypeFor[time.Duration]():
			b.outside = append(b.outside, shifted(t, b.high, time.Millisecond).String())
			if low := shifted(t, b.low, -time.Millisecond); low > 0 {
				b.outside = append(b.outside, low.String())
			}
			if b.low != "0s" {
				b.outside = append(b.outside, "0s")
			}
		case reflect.TypeFor[config.Size]():
			b.outside = append(b.outside, strconv.FormatInt(bytesOf(t, b.high)+1, 10), strings.TrimRight(b.high, "KMGiB")+"0GiB")
			if low := bytesOf(t, b.low); low > 0 {
				b.outside = append(b.outside, strconv.FormatInt(low-1, 10))
			}
		default:
			continue
		}
		all = append(all, b)
	}
	if len(all) < 15 {
		t.Fatalf("internal/config declares only %d durations and sizes, want at least 15", len(all))
	}
	return all
}

// keyOf returns the key of config for a field of the worker's configuration. The key of AckWait is ackWait.
func keyOf(field string) string { return string(unicode.ToLower(rune(field[0]))) + field[1:] }

func shifted(t *testing.T, text string, by time.Duration) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d + by
}

func bytesOf(t *testing.T, text string) int64 {
	t.Helper()
	var size config.Size
	if err := size.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return int64(size)
}

// beside lists values to set with a key, because its bound alone would violate another rule. The chart compares
// durations and checks memory.
var beside = map[string]values{
	"linger":           {"config.ackWait": "1h"},
	"ackWait":          {"config.linger": "1ms"},
	"batchDeadlineMin": {"config.batchDeadlineMax": "1h"},
	"batchDeadlineMax": {"config.batchDeadlineMin": "100ms"},
	"frameBytes":       {"config.decompress": "zstd"},
}

// TestDeclaredBoundsAreTheCharts shows that the chart accepts each bound of internal/config. For values outside, the
// error names the value and the correction.
func TestDeclaredBoundsAreTheCharts(t *testing.T) {
	for _, b := range declared(t) {
		set := enough.with(values{"resources.limits": nil}).with(beside[b.key])
		for _, value := range []string{b.low, b.high} {
			if _, err := render(t, set.with(values{"config." + b.key: value})); err != nil {
				t.Errorf("config.%s = %s is a bound: %v", b.key, value, err)
			}
		}
		for _, value := range b.outside {
			_, err := render(t, set.with(values{"config." + b.key: value}))
			if err == nil || !strings.Contains(err.Error(), "\n  - config."+b.key+" is "+value+", ") || !strings.Contains(err.Error(), ": set ") {
				t.Errorf("config.%s = %s, outside of %s to %s: %v", b.key, value, b.low, b.high, err)
			}
		}
	}
}

// worker checks the chart's variables with the worker's own code.
type worker struct{ env map[string]string }

// workerOf returns the worker of a release on the CPU, because the image's files are missing here. It unsets worker
// variables of the test's environment.
func workerOf(t *testing.T, set values) worker {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, config.Prefix+"_") {
			t.Setenv(name, "") // makes the test restore it
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	w := worker{env: workerEnvironment(t, set)}
	w.env["MILLRACE_DEVICE"] = "host"
	for _, name := range []string{"MILLRACE_SUBJECTS", "MILLRACE_RESULT_PREFIX", "MILLRACE_DEADLETTER_PREFIX"} {
		delete(w.env, name) // the chart omits them if their defaults depend on the input streams
	}
	for name, value := range w.env {
		t.Setenv(name, value)
	}
	return w
}

// refuses returns the worker's error for the given values of config.
func (w worker) refuses(t *testing.T, other values) (err error) {
	t.Helper()
	t.Run("", func(t *testing.T) {
		for at, value := range other {
			t.Setenv(variableOfValue(at), textOf(value))
		}
		_, err = config.Load(nil)
	})
	return err
}

// textOf returns a variable's text for a value of config.
func textOf(value any) string {
	if list, ok := value.([]string); ok {
		return strings.Join(list, ",")
	}
	return fmt.Sprint(value)
}

// tried returns single values of config, both valid and invalid.
func tried(t *testing.T) (all []values) {
	t.Helper()
	add := func(key string, list ...any) {
		for _, value := range list {
			all = append(all, values{"config." + key: value})
		}
	}
	for _, b := range declared(t) {
		add(b.key, b.low, b.high)
		for _, value := range b.outside {
			add(b.key, value)
		}
	}
	for key, part := range schemaNode(t).Properties["config"].Properties {
		for _, word := range part.Enum {
			if word != "" && key != "device" {
				add(key, word)
			}
		}
		if part.Type == "boolean" {
			add(key, true, false)
		}
	}
	for _, key := range []string{"streamMaxAge", "resultMaxAge", "deadletterMaxAge"} {
		add(key, "1ms", "59.9s", "1m", "99999999h")
	}
	for _, key := range []string{"streamMaxBytes", "resultMaxBytes", "deadletterMaxBytes"} {
		add(key, "1", "16383KiB", "16MiB", "99999999999GiB", "16Mi", "16M", "17M", "1Ti", "2T", "1MB")
	}
	add("batchBytes", "4Ki", "4k", "5k", "8Mi", "8M", "1Gi", "1025Mi", "1073M", "1074M", "1G", "2G", "8K", "8KB", "8m", "8mi", "8P", "1.5Mi")
	add("memoryLimit", "2TiB", "2Ti", "2T", "2Pi", "2G", "2Gi", "2GB")
	for _, key := range []string{"stream", "consumer", "resultStream"} {
		add(key, "a", "a\nb", "ü", strings.Repeat("a", 255), strings.Repeat("a", 256), "RESULTS", "INGEST")
	}
	for _, key := range []string{"resultPrefix", "deadletterPrefix", "commitPrefix"} {
		add(key, "a", "a.b", "a\nb", "ingest", "results", "deadletter", "commits", "a,b")
	}
	add("subjects", []string{"a\tb"}, []string{"a\nb"}, []string{"results.>"}, []string{"a.>", "b"})
	add("stream", "A, B", "A,", "IN-*", "*")
	add("resultStream", "{0}-R", "OUT-{1}")
	add("devices", "all", "0", "0,1", "all,0", "0,0", "01", "1023", "1024", "-1", "gpu0", "GPU-01234567-89ab-cdef-0123-456789abcdef", "GPU-0", "MIG-01234567-89ab-cdef-0123-456789abcdef")
	add("debugAddr", ":6060", "a:b:1", "[::1]:6060", "[::1:6060", "::1:6060", "localhost:0", ":65536", "a]:1", ":9464")
	add("field", "text", "a..b", "doc.body")
	add("keepFields", []string{"id"}, []string{"id", "id.x"}, []string{"."})
	add("operators", []string{"crc32c"}, []string{"minhash?k=0"}, []string{"crc32c?"})
	return all
}

// TestChartRefusesWhatTheWorkerConfigurationRefuses tries many values of config, alone and in pairs. The chart must
// refuse whatever the worker refuses, and accept each single value that the worker accepts.
func TestChartRefusesWhatTheWorkerConfigurationRefuses(t *testing.T) {
	base := enough.with(values{"resources.limits": nil, "gpu.mode": "none"}) // the worker's configuration doesn't include the GPUs
	w := workerOf(t, base)
	if err := w.refuses(t, nil); err != nil {
		t.Fatal(err)
	}
	var fine []values
	wrong, pairs := 0, 0
	check := func(set values, refused error) {
		if _, err := render(t, base.with(set)); err == nil {
			t.Errorf("the chart accepts %v, but the worker says: %v", set, refused)
		}
	}
	for _, set := range tried(t) {
		if err := w.refuses(t, set); err != nil {
			wrong++
			check(set, err)
			continue
		}
		if _, err := render(t, base.with(set)); err != nil {
			t.Errorf("the chart refuses %v, but the worker accepts it: %v", set, err)
		}
		for _, other := range fine {
			if both := set.with(other); len(both) == 2 {
				if err := w.refuses(t, both); err != nil {
					pairs++
					check(both, err)
				}
			}
		}
		fine = append(fine, set)
	}
	if wrong < 50 || pairs < 10 {
		t.Errorf("the worker refuses only %d values and %d pairs, want at least 50 and 10", wrong, pairs)
	}
	t.Logf("%d values that the worker refuses, and %d pairs", wrong, pairs)
}
