package config_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/internal/config"
	"millrace/internal/frame"
)

// load calls Load with no MILLRACE_ variables except those in env. The environment is restored when the test ends.
func load(t *testing.T, env map[string]string, checks ...config.Check) (*config.Config, error) {
	t.Helper()
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "MILLRACE_") {
			t.Setenv(name, value) // restores the variable at the end of the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, value := range env {
		t.Setenv(name, value)
	}
	return config.Load(nil, checks...)
}

func good(t *testing.T, env map[string]string) *config.Config {
	t.Helper()
	c, err := load(t, env)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

func TestDefaultsAreTheContracts(t *testing.T) {
	c := good(t, nil)
	want := map[string]string{
		"NATS_URL": "", "NATS_CREDS": "", "NATS_NKEY": "", "NATS_TLS_CA": "", "NATS_TLS_CERT": "", "NATS_TLS_KEY": "", "NATS_TLS_FIRST": "false",
		"NATS_JS_DOMAIN": "", "NATS_JS_PREFIX": "", "NATS_CONNECTIONS": "0",
		"DATA_DIR": "millrace-data", "STREAM": "INGEST", "SUBJECTS": "ingest.>", "CONSUMER": "millrace",
		"RESULT_STREAM": "RESULTS", "RESULT_PREFIX": "results", "DEADLETTER_PREFIX": "deadletter", "COMMIT_PREFIX": "commits", "PROVISION": "true",
		"STREAM_RETENTION": "auto", "STREAM_TRIM": "auto", "STREAM_MAX_AGE": "0s", "STREAM_MAX_BYTES": "4GiB", "RESULT_MAX_AGE": "168h0m0s", "RESULT_MAX_BYTES": "4GiB",
		"DEADLETTER_MAX_AGE": "0s", "DEADLETTER_MAX_BYTES": "1GiB", "PROVISION_REPLICAS": "0", "PROVISION_STORAGE": "file",
		"FILTER": "", "STATE_RECORDS": "1000000", "STATE_BYTES": "0", "STATE_LOST": "stop", "STATE_STANDBY": "true", "ANNOTATE_AS": "millrace",
		"DELIVERY": "shared", "PARTITIONS": "8", "EXACTLY_ONCE": "auto", "RESULT_IDS": "true", "ACK": "sent",
		"MAX_DELIVER": "10", "ACK_WAIT": "30s", "MAX_ACK_PENDING": "0",
		"OPERATORS": "crc32c,minhash", "OPERATOR_PATH": "", "CACHE_DIR": "", "RESULT_FORMAT": "json", "FRAMING": "none", "FIELD": "", "FIELD_MISSING": "reject", "KEEP_FIELDS": "", "FRAME_RECORDS": "65536", "FRAME_BYTES": "64MiB",
		"DECOMPRESS": "none", "RESULT_ENCODING": "none", "DEVICE": "auto", "DEVICES": "all", "KERNELS": "", "NVRTC": "",
		"LANES": "4", "BATCH_BYTES": "4MiB", "BATCH_PAYLOADS": "8192", "LINGER": "2ms", "SCRATCH_LIMIT": "1GiB", "MEMORY_LIMIT": "0", "DRAIN_TIMEOUT": "25s", "BATCH_DEADLINE_MIN": "10s", "BATCH_DEADLINE_MAX": "2m0s",
		"HTTP_ADDR": ":9464", "DEBUG_ADDR": "", "LOG_LEVEL": "info", "LOG_FORMAT": "auto", "NVTX": "false",
	}
	got := map[string]string{}
	for _, v := range c.Variables() {
		got[strings.TrimPrefix(v.Name, "MILLRACE_")] = v.Value
		if v.Form == "" || v.Meaning == "" {
			t.Errorf("%s has no form or no meaning", v.Name)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("defaults are\n%v, want\n%v", got, want)
	}
	if w := c.Warnings(); len(w) != 0 {
		t.Errorf("warnings with nothing set: %q", w)
	}
}

// everything returns a value for each variable that differs from its default.
func everything(t *testing.T) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"MILLRACE_NATS_URL": "nats://a:4222, b:4223", "MILLRACE_NATS_CREDS": file,
		"MILLRACE_NATS_TLS_CA": file, "MILLRACE_NATS_TLS_CERT": file, "MILLRACE_NATS_TLS_KEY": file, "MILLRACE_NATS_TLS_FIRST": "true",
		"MILLRACE_NATS_JS_DOMAIN": "hub", "MILLRACE_NATS_CONNECTIONS": "4",
		"MILLRACE_DATA_DIR": "d", "MILLRACE_STREAM": "IN", "MILLRACE_SUBJECTS": "a.>, b.*.c", "MILLRACE_CONSUMER": "c",
		"MILLRACE_RESULT_STREAM": "OUT", "MILLRACE_RESULT_PREFIX": "r.v2", "MILLRACE_DEADLETTER_PREFIX": "dead", "MILLRACE_COMMIT_PREFIX": "c.v2",
		"MILLRACE_STREAM_RETENTION": "limits", "MILLRACE_STREAM_TRIM": "false", "MILLRACE_STREAM_MAX_AGE": "48h", "MILLRACE_STREAM_MAX_BYTES": "1GiB",
		"MILLRACE_RESULT_MAX_AGE": "24h", "MILLRACE_RESULT_MAX_BYTES": "2GiB", "MILLRACE_DEADLETTER_MAX_AGE": "720h", "MILLRACE_DEADLETTER_MAX_BYTES": "64MiB",
		"MILLRACE_PROVISION_REPLICAS": "3", "MILLRACE_PROVISION_STORAGE": "memory",
		"MILLRACE_DELIVERY": "exclusive", "MILLRACE_PARTITIONS": "4", "MILLRACE_EXACTLY_ONCE": "required", "MILLRACE_RESULT_IDS": "false", "MILLRACE_ACK": "confirmed",
		"MILLRACE_PROVISION": "true", "MILLRACE_MAX_DELIVER": "7", "MILLRACE_ACK_WAIT": "1m", "MILLRACE_MAX_ACK_PENDING": "500",
		"MILLRACE_OPERATORS": "crc32c, minhash?k=8&hashes=16", "MILLRACE_OPERATOR_PATH": t.TempDir(), "MILLRACE_CACHE_DIR": "cache", "MILLRACE_RESULT_FORMAT": "arrow",
		"MILLRACE_FRAMING": "auto", "MILLRACE_FIELD": "text", "MILLRACE_FIELD_MISSING": "null", "MILLRACE_KEEP_FIELDS": "id,meta.lang", "MILLRACE_FRAME_RECORDS": "1000", "MILLRACE_FRAME_BYTES": "8MiB",
		"MILLRACE_DECOMPRESS": "zstd", "MILLRACE_RESULT_ENCODING": "lz4",
		"MILLRACE_STATE_RECORDS": "500", "MILLRACE_STATE_BYTES": "2GiB", "MILLRACE_STATE_LOST": "begin", "MILLRACE_STATE_STANDBY": "false",
		"MILLRACE_FILTER": "record.bytes > 5", "MILLRACE_ANNOTATE_AS": "stage_2",
		"MILLRACE_DEVICE": "cuda", "MILLRACE_DEVICES": "0,GPU-01234567-89ab-cdef-0123-456789abcdef", "MILLRACE_KERNELS": "k.so", "MILLRACE_NVRTC": "n.so",
		"MILLRACE_LANES": "8", "MILLRACE_BATCH_BYTES": "64KiB", "MILLRACE_BATCH_PAYLOADS": "100", "MILLRACE_LINGER": "0s",
		"MILLRACE_SCRATCH_LIMIT": "2097152", "MILLRACE_MEMORY_LIMIT": "768MiB", "MILLRACE_DRAIN_TIMEOUT": "5s", "MILLRACE_BATCH_DEADLINE_MIN": "3s", "MILLRACE_BATCH_DEADLINE_MAX": "90s", "MILLRACE_HTTP_ADDR": "127.0.0.1:0", "MILLRACE_DEBUG_ADDR": "localhost:6060",
		"MILLRACE_LOG_LEVEL": "WARN", "MILLRACE_LOG_FORMAT": "json", "MILLRACE_NVTX": "true",
	}
}

func TestEveryVariableIsRead(t *testing.T) {
	env := everything(t)
	c := good(t, env)
	for _, v := range c.Variables() {
		if v.Name == "MILLRACE_NATS_NKEY" || v.Name == "MILLRACE_NATS_JS_PREFIX" { // these variables exclude NATS_CREDS and NATS_JS_DOMAIN
			continue
		}
		if !v.Set || !c.IsSet(v.Name) {
			t.Errorf("%s: Load does not see that it is set", v.Name)
		}
		if v.Value == v.Default {
			t.Errorf("%s: still the default %q", v.Name, v.Default)
		}
		if !c.IsChanged(v.Name) && v.Name != "MILLRACE_PROVISION" { // its default depends on the server
			t.Errorf("%s: IsChanged does not see the change", v.Name)
		}
	}
	if !slices.Equal(c.Subjects, config.List{"a.>", "b.*.c"}) || c.BatchBytes != 64<<10 || c.ScratchLimit != 2<<20 ||
		c.AckWait != time.Minute || c.LogLevel != slog.LevelWarn || c.NATS.TLS.Key != env["MILLRACE_NATS_TLS_KEY"] {
		t.Errorf("the values differ from the environment: %+v", c)
	}
	for _, warning := range c.Warnings() {
		if !strings.HasPrefix(warning, "MILLRACE_STATE_") { // no built-in operator of this configuration is stateful
			t.Errorf("warning: %q", warning)
		}
	}
}

func TestNKeyAloneIsRead(t *testing.T) {
	env := everything(t)
	env["MILLRACE_NATS_NKEY"] = env["MILLRACE_NATS_CREDS"]
	delete(env, "MILLRACE_NATS_CREDS")
	if c := good(t, env); c.NATS.NKey != env["MILLRACE_NATS_NKEY"] {
		t.Errorf("NKey is %q", c.NATS.NKey)
	}
}

func TestNamesWithoutThePrefixAreNotRead(t *testing.T) {
	env := map[string]string{"STREAM": "X", "DEVICE": "cuda", "LANES": "9", "NATS_URL": "nats://x:1", "URL": "nats://y:1"}
	if c := good(t, env); c.Stream != "INGEST" || c.Device != "auto" || c.Lanes != 4 || !c.Embedded() {
		t.Errorf("Load reads variables without the prefix: %+v", c)
	}
}

func TestProvisionFollowsTheServer(t *testing.T) {
	for _, tc := range []struct {
		url, provision string
		want           bool
	}{
		{"", "", true}, {"", "false", false}, {"nats://a:4222", "", false}, {"nats://a:4222", "true", true},
	} {
		env := map[string]string{"MILLRACE_NATS_URL": tc.url}
		if tc.provision != "" {
			env["MILLRACE_PROVISION"] = tc.provision
		}
		if c := good(t, env); c.Provision != tc.want || c.Embedded() != (tc.url == "") {
			t.Errorf("url %q, provision %q: provision is %v", tc.url, tc.provision, c.Provision)
		}
	}
}

func TestEveryProblemIsNamedAtOnce(t *testing.T) {
	env := map[string]string{
		"MILLRACE_LANES": "many", "MILLRACE_BATCH_BYTES": "4MB", "MILLRACE_LINGER": "2", "MILLRACE_PROVISION": "maybe",
		"MILLRACE_LOG_LEVEL": "loud", "MILLRACE_BATCH_PAYLOADS": "0", "MILLRACE_DEVICE": "gpu", "MILLRACE_STREAM": "a.b",
		"MILLRACE_ACK_WAIT": "",
	}
	_, err := load(t, env)
	var all *config.Error
	if !errors.As(err, &all) {
		t.Fatalf("Load: %v", err)
	}
	var names []string
	for _, p := range all.Problems {
		names = append(names, p.Variable)
		if p.Value != env[p.Variable] {
			t.Errorf("%s: value %q, want %q", p.Variable, p.Value, env[p.Variable])
		}
	}
	want := []string{
		"MILLRACE_STREAM", "MILLRACE_PROVISION", "MILLRACE_ACK_WAIT", "MILLRACE_DEVICE", "MILLRACE_LANES",
		"MILLRACE_BATCH_BYTES", "MILLRACE_BATCH_PAYLOADS", "MILLRACE_LINGER", "MILLRACE_LOG_LEVEL",
	}
	if !slices.Equal(names, want) {
		t.Errorf("named %v, want %v", names, want)
	}
	if lines := strings.Count(err.Error(), "\n"); lines != len(want) {
		t.Errorf("%d lines after the heading, want %d:\n%v", lines, len(want), err)
	}
	for name, value := range env {
		if got, set := os.LookupEnv(name); !set || got != value {
			t.Errorf("%s is %q after Load, was %q", name, got, value)
		}
	}
}

// TestLoadLeavesTheEnvironmentAlone calls Load with invalid values from several goroutines. It repeatedly compares the
// environment with its initial state.
func TestLoadLeavesTheEnvironmentAlone(t *testing.T) {
	_, first := load(t, map[string]string{"MILLRACE_LANES": "many", "MILLRACE_LINGER": "2", "MILLRACE_PROVISION": "maybe"})
	if first == nil {
		t.Fatal("Load takes values that cannot be read")
	}
	before := os.Environ()
	var loads sync.WaitGroup
	for range 4 {
		loads.Go(func() {
			for range 20 {
				if _, err := config.Load(nil); err == nil || err.Error() != first.Error() {
					t.Errorf("Load returns\n%v\nwant\n%v", err, first)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { loads.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		if now := os.Environ(); !slices.Equal(now, before) {
			t.Fatalf("the environment changed to\n%q\nfrom\n%q", now, before)
		}
	}
}

// TestAValueThatCannotBeReadCausesNoOtherProblem checks that comparisons with other variables use the default in place
// of an invalid value.
func TestAValueThatCannotBeReadCausesNoOtherProblem(t *testing.T) {
	_, err := load(t, map[string]string{"MILLRACE_BATCH_DEADLINE_MAX": "long"})
	var all *config.Error
	if !errors.As(err, &all) || len(all.Problems) != 1 {
		t.Errorf("Load returns\n%v\nwant one problem", err)
	}
}

func TestOperatorsAreParsed(t *testing.T) {
	c, err := load(t, map[string]string{"MILLRACE_OPERATORS": "crc32c, minhash?k=8", "MILLRACE_RESULT_FORMAT": "binary"})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.ParsedOperators(), c.ResultFormat); got != "[crc32c minhash?k=8&hashes=128&seed=42] binary" {
		t.Errorf("parsed %s", got)
	}
	for list, why := range map[string]string{"sha1": `unknown operator "sha1": known are crc32c, minhash, quality, neardup`, "": "empty"} {
		_, err = load(t, map[string]string{"MILLRACE_OPERATORS": list, "MILLRACE_LANES": "0"})
		want := fmt.Sprintf(`2 problems in the configuration:
  MILLRACE_OPERATORS=%q: %s; set operators, separated by commas, like crc32c,minhash?k=24
  MILLRACE_LANES="0": less than 1; set a whole number from 1 to 64`, list, why)
		if err == nil || err.Error() != want {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
	}
}

func TestFrameSettingsAreParsed(t *testing.T) {
	c := good(t, map[string]string{
		"MILLRACE_FRAMING": "arrow", "MILLRACE_FIELD": "text", "MILLRACE_KEEP_FIELDS": "id", "MILLRACE_FRAME_RECORDS": "10", "MILLRACE_FRAME_BYTES": "4095MiB",
		"MILLRACE_DECOMPRESS": "auto", "MILLRACE_RESULT_ENCODING": "snappy", "MILLRACE_RESULT_FORMAT": "arrow",
	})
	if got, want := c.Splitter(), (frame.Splitter{Framing: frame.Arrow, Field: "text", Keep: config.List{"id"}, MaxRecords: 10, MaxBytes: 4095 << 20}); !reflect.DeepEqual(got, want) {
		t.Errorf("the splitter is %+v, want %+v", got, want)
	}
	if got := fmt.Sprint(c.Decompress, c.ResultEncoding, c.ResultFormat); got != "auto snappy arrow" {
		t.Errorf("parsed %s", got)
	}
}

func TestEveryWordOfTheFrameSettingsIsParsed(t *testing.T) {
	for variable, of := range map[string]struct {
		words  string
		parsed func(*config.Config) any
	}{
		"FRAMING":         {"none newline_delimited length_delimited varint_length_delimited arrow auto", func(c *config.Config) any { return c.Framing }},
		"DECOMPRESS":      {"none zstd gzip lz4 snappy auto", func(c *config.Config) any { return c.Decompress }},
		"RESULT_ENCODING": {"none zstd lz4 snappy", func(c *config.Config) any { return c.ResultEncoding }},
		"RESULT_FORMAT":   {"json binary arrow", func(c *config.Config) any { return c.ResultFormat }},
	} {
		for _, word := range strings.Fields(of.words) {
			if got := fmt.Sprint(of.parsed(good(t, map[string]string{"MILLRACE_" + variable: word}))); got != word {
				t.Errorf("%s=%s is parsed as %s", variable, word, got)
			}
		}
	}
}

func TestFrameLimitsWithoutFramesAreWarnings(t *testing.T) {
	for env, want := range map[string][]string{
		"FRAME_RECORDS=65536 FRAME_BYTES=64MiB":                             nil,
		"FRAME_RECORDS=10 FRAME_BYTES=1MiB":                                 {"MILLRACE_FRAME_RECORDS has no effect", "MILLRACE_FRAME_BYTES has no effect"},
		"FRAME_RECORDS=10 FRAME_BYTES=1MiB DECOMPRESS=gzip":                 {"MILLRACE_FRAME_RECORDS has no effect"},
		"FRAME_RECORDS=10 FRAME_BYTES=1MiB FRAMING=varint_length_delimited": nil,
	} {
		set := map[string]string{}
		for pair := range strings.SplitSeq(env, " ") {
			name, value, _ := strings.Cut(pair, "=")
			set["MILLRACE_"+name] = value
		}
		warnings := good(t, set).Warnings()
		if len(warnings) != len(want) {
			t.Errorf("%s: %d warnings, want %d: %q", env, len(warnings), len(want), warnings)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(warnings[i], want[i]) {
				t.Errorf("%s: warning %q, want %q", env, warnings[i], want[i])
			}
		}
	}
}

func TestChecksOfTheCaller(t *testing.T) {
	check := config.Check{Variable: "MILLRACE_STREAM", Wrong: func(c *config.Config) error {
		if c.Stream == "MINE" {
			return errors.New(`no stream "MINE"`)
		}
		return nil
	}}
	if _, err := load(t, nil, check); err != nil {
		t.Errorf("the default value fails the check: %v", err)
	}
	_, err := load(t, map[string]string{"MILLRACE_STREAM": "MINE", "MILLRACE_LANES": "0"}, check)
	want := `2 problems in the configuration:
  MILLRACE_STREAM="MINE": no stream "MINE"; set stream names or patterns like INGEST-*, separated by commas
  MILLRACE_LANES="0": less than 1; set a whole number from 1 to 64`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestUnknownNamesAreWarnings(t *testing.T) {
	for name, advice := range map[string]string{
		"MILLRACE_LANE": "did you mean MILLRACE_LANES?", "MILLRACE_BATCH_BYTS": "did you mean MILLRACE_BATCH_BYTES?",
		"MILLRACE_STRAEM": "did you mean MILLRACE_STREAM?", "MILLRACE_RESULTS_FORMAT": "did you mean MILLRACE_RESULT_FORMAT?",
		"MILLRACE_BATCH_SIZE": "did you mean MILLRACE_BATCH_BYTES?", "MILLRACE_HTTP_PORT": "did you mean MILLRACE_HTTP_ADDR?",
		"MILLRACE_COLOUR": "see worker config", "MILLRACE_": "see worker config",
		"MILRACE_LANES": "did you mean MILLRACE_LANES?", "MIRLRACE_STRAEM": "did you mean MILLRACE_STREAM?", "MILRACE_COLOUR": "see worker config",
		"MILLRACELANES": "did you mean MILLRACE_LANES?", "MILL_RACE_LANES": "did you mean MILLRACE_LANES?",
		"millrace_lanes": "did you mean MILLRACE_LANES?", "Millrace_Lane": "did you mean MILLRACE_LANES?",
		// These aren't variables from Kubernetes, because Kubernetes sets all variables of a service together.
		"MILLRACE_PORT": "see worker config", "MILLRACE_PORT_9464_TCP": "see worker config",
	} {
		t.Run(name, func(t *testing.T) {
			c := good(t, map[string]string{name: "8"})
			want := name + " is not a variable of this worker and has no effect: " + advice
			if got := c.Warnings(); len(got) != 1 || got[0] != want {
				t.Errorf("warnings are %q, want %q", got, want)
			}
		})
	}
}

// TestOtherNamesAreNoWarnings sets variables of other programs. It also sets the variables that Kubernetes sets for
// services called millrace, millrace-nats and mill-race.
func TestOtherNamesAreNoWarnings(t *testing.T) {
	env := map[string]string{"MILL_LANES": "8", "MILLER_RACE_LANES": "8", "TERRACE_LANES": "8", "MILL": "8"}
	for _, service := range []string{"MILLRACE", "MILLRACE_NATS", "MILL_RACE"} {
		for _, suffix := range []string{
			"SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_METRICS", "PORT", "PORT_9464_TCP", "PORT_9464_TCP_PROTO", "PORT_9464_TCP_PORT", "PORT_9464_TCP_ADDR",
			"PORT_53_UDP",
		} {
			env[service+"_"+suffix] = "x"
		}
	}
	if c := good(t, env); len(c.Warnings()) != 0 {
		t.Errorf("warnings: %q", c.Warnings())
	}
	env["MILLRACE_PORT_9464"] = "x"
	if c := good(t, env); len(c.Warnings()) != 1 {
		t.Errorf("MILLRACE_PORT_9464 is no variable of Kubernetes, and the warnings are %q", c.Warnings())
	}
}
