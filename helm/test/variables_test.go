package test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// variable is a worker variable from the table in docs/configuration.md. The worker's code generates the table, and a
// test there keeps it current.
type variable struct{ standard, takes string }

var variableRow = regexp.MustCompile("(?m)^\\| `(MILLRACE_[A-Z_]+)` \\| (.+?) \\| (.+?) \\|")

func workerVariables(t *testing.T) map[string]variable {
	t.Helper()
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]variable{}
	for _, row := range variableRow.FindAllStringSubmatch(string(text), -1) {
		standard, _, _ := strings.Cut(strings.Trim(row[2], "`"), "; with several streams")
		if standard == "empty" {
			standard = ""
		}
		all[row[1]] = variable{standard: standard, takes: row[3]}
	}
	if len(all) < 30 {
		t.Fatalf("only %d variables were found in docs/configuration.md, want more than 30: has the table changed its form?", len(all))
	}
	return all
}

func workerPod(t *testing.T, list []object) core.PodSpec {
	t.Helper()
	return find[*apps.Deployment](t, list).Spec.Template.Spec
}

// environment returns the variables of a container. A variable from a Secret has the value "secret/key".
func environment(c core.Container) map[string]string {
	all := map[string]string{}
	for _, v := range c.Env {
		all[v.Name] = v.Value
		if v.ValueFrom != nil {
			all[v.Name] = v.ValueFrom.SecretKeyRef.Name + "/" + v.ValueFrom.SecretKeyRef.Key
		}
	}
	return all
}

// workerEnvironment returns the worker's variables for the values v.
func workerEnvironment(t *testing.T, v values) map[string]string {
	t.Helper()
	return environment(workerPod(t, objects(t, v)).Containers[0])
}

// TestEveryVariableIsAValue sets every value. It needs two configurations, because credentials and NKeys are mutually
// exclusive.
func TestEveryVariableIsAValue(t *testing.T) {
	all := enough.with(values{
		"nats.existingSecret": "nats", "nats.credsKey": "user.creds",
		"nats.tls.caKey": "ca.crt", "nats.tls.certKey": "tls.crt", "nats.tls.keyKey": "tls.key", "nats.tls.first": true, "nats.jsDomain": "hub",
		"config.kernels": "/opt/libmillrace.so", "config.nvrtc": "/opt/libnvrtc.so", "config.cacheDir": "/cache", "config.debugAddr": "127.0.0.1:6060", "config.operatorPath": "/operators",
		"config.framing": "arrow", "config.field": "text", "config.keepFields": []string{"id"}, "config.filter": "record.bytes > 5",
	})
	set := workerEnvironment(t, all)
	maps.Copy(set, workerEnvironment(t, enough.with(values{"nats.existingSecret": "nats", "nats.nkeyKey": "seed", "nats.jsPrefix": "$JS.hub.API"})))
	maps.Copy(set, workerEnvironment(t, enough.with(modes["embedded"])))
	known := workerVariables(t)
	for name := range known {
		if _, ok := set[name]; !ok {
			t.Errorf("no value sets %s: add it to config in values.yaml and to the schema", name)
		}
	}
	for name := range set {
		if _, ok := known[name]; !ok && strings.HasPrefix(name, "MILLRACE_") {
			t.Errorf("the chart sets %s, which the worker does not know", name)
		}
	}
}

// differing lists the variables whose default differs in the chart, with the reason.
var differing = map[string]string{
	"MILLRACE_NATS_URL":        "an embedded server in a pod is for trying things out",
	"MILLRACE_DATA_DIR":        "it is set with the embedded server alone",
	"MILLRACE_DEVICE":          "a pod that was given a GPU is to use it",
	"MILLRACE_MAX_ACK_PENDING": "all pods share the consumer",
	"MILLRACE_PROVISION":       "the worker's default has two parts",
}

func TestDefaultsAreTheWorkers(t *testing.T) {
	set := workerEnvironment(t, enough)
	for name, known := range workerVariables(t) {
		switch got, why := set[name], differing[name]; {
		case got != known.standard && why == "":
			t.Errorf("%s is %q by default, but the worker's own default is %q", name, got, known.standard)
		case got == known.standard && why != "":
			t.Errorf("%s has the worker's default: remove it from the list of differing variables", name)
		}
	}
}

// changed maps each key of config to a value other than the default and the resulting variable.
var changed = map[string]struct {
	value any
	text  string
}{
	"stream": {"IN", "IN"}, "subjects": {[]string{"a.>", "b.*"}, "a.>,b.*"}, "consumer": {"c", "c"}, "resultStream": {"OUT", "OUT"},
	"resultPrefix": {"out.x", "out.x"}, "deadletterPrefix": {"dead", "dead"}, "commitPrefix": {"c.x", "c.x"}, "provision": {true, "true"},
	"streamRetention": {"limits", "limits"}, "streamTrim": {"false", "false"}, "streamMaxAge": {"48h", "48h"}, "streamMaxBytes": {"0", "0"}, "resultMaxAge": {"24h", "24h"},
	"resultMaxBytes": {"64GiB", "64GiB"}, "deadletterMaxAge": {"720h", "720h"}, "deadletterMaxBytes": {"64MiB", "64MiB"},
	"provisionReplicas": {3, "3"}, "provisionStorage": {"memory", "memory"},
	"delivery": {"exclusive", "exclusive"}, "partitions": {256, "256"}, "exactlyOnce": {"required", "required"}, "resultIds": {false, "false"}, "ack": {"confirmed", "confirmed"}, "maxDeliver": {3, "3"},
	"ackWait": {"1m30s", "1m30s"}, "maxAckPending": {10_000_000, "10000000"}, "operators": {[]string{"minhash?k=5&hashes=16"}, "minhash?k=5&hashes=16"},
	"operatorPath": {"/usr,/etc", "/usr,/etc"}, "resultFormat": {"annotated", "annotated"}, "annotateAs": {"stage_2", "stage_2"}, "filter": {`record.bytes > 5 && fields.id != "a"`, `record.bytes > 5 && fields.id != "a"`}, "framing": {"auto", "auto"},
	"field": {"doc.text", "doc.text"}, "fieldMissing": {"null", "null"}, "keepFields": {[]string{"id", "meta.lang"}, "id,meta.lang"},
	"frameRecords": {16_777_216, "16777216"}, "frameBytes": {"256MiB", "256MiB"}, "decompress": {"auto", "auto"}, "resultEncoding": {"zstd", "zstd"},
	"stateRecords": {1_073_741_824, "1073741824"}, "stateBytes": {"40GiB", "40GiB"}, "stateLost": {"begin", "begin"}, "stateStandby": {false, "false"},
	"device": {"auto", "auto"}, "devices": {"0,1", "0,1"}, "kernels": {"/a.so", "/a.so"}, "nvrtc": {"/b.so", "/b.so"}, "cacheDir": {"/c", "/c"},
	"lanes": {8, "8"}, "batchBytes": {"64KiB", "64KiB"}, "batchPayloads": {1_048_576, "1048576"}, "linger": {"500ms", "500ms"},
	"scratchLimit": {"2GiB", "2GiB"}, "memoryLimit": {"12GiB", "12GiB"}, "drainTimeout": {"2m", "2m"},
	"batchDeadlineMin": {"1m", "1m"}, "batchDeadlineMax": {"10m", "10m"}, "debugAddr": {"127.0.0.1:6060", "127.0.0.1:6060"},
	"logLevel": {"debug", "debug"}, "logFormat": {"json", "json"}, "nvtx": {true, "true"},
}

func TestValuesReachTheirVariables(t *testing.T) {
	for _, key := range slices.Sorted(maps.Keys(loaded(t).Values["config"].(map[string]any))) {
		want, ok := changed[key]
		if !ok {
			t.Errorf("this test doesn't try config.%s", key)
			continue
		}
		name := variableOf(key)
		set := values{"config." + key: want.value, "resources.limits.memory": "64Gi"}
		if key == "fieldMissing" {
			set["config.field"] = "text"
		}
		if key == "exactlyOnce" || key == "resultIds" {
			set["config.delivery"] = "exclusive"
		}
		if key == "devices" {
			set["gpu.count"] = 2
		}
		if got := workerEnvironment(t, enough.with(set))[name]; got != want.text {
			t.Errorf("config.%s = %v: %s is %q, want %q", key, want.value, name, got, want.text)
		}
	}
}

// TestNoVariableIsThereTwice checks each mode, with extra variables.
func TestNoVariableIsThereTwice(t *testing.T) {
	for name, mode := range modes {
		seen := map[string]bool{}
		extra := []any{map[string]any{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://otel:4318"}}
		for _, v := range workerPod(t, objects(t, enough.with(mode).with(values{"extraEnv": extra}))).Containers[0].Env {
			if seen[v.Name] {
				t.Errorf("%s: %s occurs twice", name, v.Name)
			}
			seen[v.Name] = true
		}
		if !seen["OTEL_EXPORTER_OTLP_ENDPOINT"] {
			t.Errorf("%s: extraEnv is missing", name)
		}
	}
}
