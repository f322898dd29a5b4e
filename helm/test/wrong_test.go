package test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestWrongValuesAreNamed sets one wrong value at a time. The error must name the value.
func TestWrongValuesAreNamed(t *testing.T) {
	for at, wrong := range map[string][]any{
		"gpu.mode":                           {"GPU", "cpu", "", true},
		"gpu.count":                          {0, 65, "2", 1.5},
		"gpu.resource":                       {"gpu", ""},
		"gpu.mig.resource":                   {"1g.10gb"},
		"gpu.dra.deviceClassName":            {""},
		"gpus":                               {1}, // this value doesn't exist
		"gpu.mods":                           {"mig"},
		"config.lane":                        {4},
		"config.lanes":                       {0, 65, "many"},
		"config.batchBytes":                  {"4 MiB", "4MB", "4.5MiB", 4096},
		"config.batchPayloads":               {0, 1 << 21},
		"config.linger":                      {"2", "two", 2},
		"config.memoryLimit":                 {"4GB", 0, ""},
		"config.drainTimeout":                {25, "25", "-1s", ""},
		"config.batchDeadlineMin":            {10, "10", "-1s", ""},
		"config.batchDeadlineMax":            {"2 m"},
		"config.ackWait":                     {"30 s"},
		"config.delivery":                    {"both"},
		"config.partitions":                  {0, 257},
		"config.ack":                         {"none"},
		"config.device":                      {"gpu"},
		"config.resultFormat":                {"xml"},
		"config.annotateAs":                  {"a.b", ""},
		"config.filter":                      {1},
		"config.stateRecords":                {0, 1_073_741_825},
		"config.stateBytes":                  {"4GB", 0, ""},
		"config.stateLost":                   {"wait"},
		"config.stateStandby":                {"yes"},
		"config.framing":                     {"lines", ""},
		"config.field":                       {1},
		"config.fieldMissing":                {"skip", ""},
		"config.keepFields":                  {"id", []string{"id", "id"}, []string{"a,b"}},
		"config.frameRecords":                {0, 16_777_217},
		"config.frameBytes":                  {"64 MiB", 1 << 20},
		"config.decompress":                  {"brotli"},
		"config.resultEncoding":              {"gzip", "auto"},
		"config.maxAckPending":               {-1, 10_000_001},
		"config.subjects":                    {[]string{}, "ingest.>", []string{"a,b"}},
		"config.operatorPath":                {1},
		"config.operators":                   {[]string{}, []string{"crc32c,minhash"}},
		"config.stream":                      {"", "in.gest", "IN GEST", "A,,B", "A,B C", "IN-?", "IN-[ab]", "IN-{0}"},
		"config.resultPrefix":                {"", "results.>", ".results"},
		"config.debugAddr":                   {"6060", "http://localhost:6060"},
		"config.logLevel":                    {"trace"},
		"config.nvtx":                        {"yes"},
		"nats.connections":                   {17, -1},
		"nats.jsDomain":                      {"a.b", "a b"},
		"nats.jsPrefix":                      {"from.hub.>", "from.hub."},
		"nats.tls.first":                     {"yes"},
		"nats.credsKey":                      {"nats creds"},
		"nats.embedded.dataDir":              {"data"},
		"nats.embedded.sizeLimit":            {"1GiB"},
		"http.port":                          {0, 65536, "http"},
		"image.repository":                   {"millrace:1.0", "millrace@sha256:0"},
		"image.digest":                       {"latest"},
		"image.pullPolicy":                   {"always"},
		"image.variant":                      {"", "cuda"},
		"operators.sources":                  {[]string{"entropy.cu"}, map[string]any{"entropy.cu": 1}},
		"operators.tables":                   {map[string]any{"a": true}},
		"operators.cache.volume":             {"emptyDir"},
		"operators.cache.sizeLimit":          {"1GiB"},
		"operators.configMap":                {"Upper", "two names", []string{"a"}},
		"operators.volume":                   {"ops", map[string]any{"emptyDir": map[string]any{}, "nfs": map[string]any{}}},
		"operators.revision":                 {7},
		"operators.results.perRecord":        {-1, "4"},
		"operators.results.perByte":          {-1},
		"operators.source":                   {map[string]any{}},
		"image.pullSecrets":                  {"mine", []string{"mine"}},
		"replicaCount":                       {-1, "one"},
		"terminationGraceMarginSeconds":      {0, 1},
		"probes.liveness.periodSeconds":      {0},
		"probes.liveness.path":               {"/"},
		"resources.claims":                   {[]string{"gpu"}},
		"strategy.type":                      {"Rolling"},
		"nodeSelector":                       {map[string]any{"gpu": true}, []string{"gpu"}},
		"tolerations":                        {map[string]any{"key": "gpu"}},
		"podDisruptionBudget.maxUnavailable": {"half", -1},
		"autoscaling.mode":                   {"on", true},
		"autoscaling.maxReplicas":            {0},
		"autoscaling.lagFactor":              {1, 0.5, "2"},
		"autoscaling.lagThreshold":           {-1},
		"autoscaling.keda.natsServerMonitoringEndpoint": {"http://nats:8222", "nats:8222/jsz"},
		"podMonitor.interval":                           {"15", 15, "1m 30s"},
		"networkPolicy.natsPorts":                       {[]int{}, []int{0}},
		"networkPolicy.from":                            {"prometheus"},
		"networkPolicy.dnsTo":                           {"kube-dns"},
		"extraEnv":                                      {map[string]any{"A": "b"}, []any{map[string]any{"value": "b"}}},
		"prometheusRule.runbooks":                       {"docs/runbooks", "https://a b"},
		"prometheusRule.operatorFaultsWindow":           {"1h", 0, 59, -3600},
		"test.gpu":                                      {"no"},
		"test.operators":                                {[]string{"entropy"}},
		"imagePullSecrets":                              {"mine", []string{"mine"}},
		"global.imageRegistry":                          {"https://mirror.example.com", "mirror/"},
		"global.imagePullSecrets":                       {"mine", []any{map[string]any{"nome": "a"}}},
		"envFrom":                                       {[]any{map[string]any{"secret": "a"}}, []any{map[string]any{"prefix": "A_"}}},
		"initContainers":                                {[]any{map[string]any{"image": "a"}}, map[string]any{"name": "a"}},
		"extraContainers":                               {[]any{map[string]any{"name": "a"}}},
		"lifecycle":                                     {map[string]any{"prestop": map[string]any{}}, map[string]any{"preStop": map[string]any{"sleep": 5}}},
		"extraObjects":                                  {"a", []int{1}},
		"dnsPolicy":                                     {"None "},
		"dnsConfig":                                     {map[string]any{"nameserver": "10.0.0.1"}},
		"hostAliases":                                   {[]any{map[string]any{"ip": "10.0.0.1"}}},
		"schedulerName":                                 {"My Scheduler"},
		"commonLabels":                                  {map[string]any{"team": 1}},
		"deploymentAnnotations":                         {map[string]any{"a": true}},
		"revisionHistoryLimit":                          {-1},
	} {
		for _, value := range wrong {
			_, err := render(t, enough.with(values{at: value}))
			if err == nil {
				t.Errorf("the chart accepts %s = %#v", at, value)
				continue
			}
			if !names(err.Error(), at) {
				t.Errorf("%s = %#v: the error does not name it:\n%v", at, value, err)
			}
		}
	}
}

// names reports whether an error identifies a value. The schema checker names a path such as '/gpu/mode', and the
// template names unknown values by dotted path. Inside lists, the schema checker names them.
func names(message, at string) bool {
	place := "/" + strings.ReplaceAll(at, ".", "/")
	return regexp.MustCompile(`at '`+regexp.QuoteMeta(place)+`(/[^']*)?'`).MatchString(message) || strings.Contains(message, "- "+at+" is not a value of this chart: ") ||
		strings.Contains(message, "- "+at+".")
}

// TestWhatDoesNotGoTogetherIsNamed sets values that are valid separately but not together.
func TestWhatDoesNotGoTogetherIsNamed(t *testing.T) {
	for want, set := range map[string]values{
		"image.repository is empty": {"image.repository": ""},
		"nats.url is empty":         {"nats.url": ""},
		"nats.url, nats.urlKey and nats.embedded.enabled are mutually exclusive":                                              {"nats.embedded.enabled": true},
		"nats.url contains a user or password":                                                                                {"nats.url": "nats://me:secret@nats:4222"},
		"nats.embedded.enabled is set for 4 pods":                                                                             {"nats.url": "", "nats.embedded.enabled": true, "replicaCount": 4},
		"nats.existingSecret is empty, and urlKey, credsKey or nkeyKey":                                                       {"nats.credsKey": "user.creds"},
		"nats.credsKey and nats.nkeyKey are both set":                                                                         {"nats.existingSecret": "s", "nats.credsKey": "a", "nats.nkeyKey": "b"},
		"nats.jsDomain and nats.jsPrefix are both set":                                                                        {"nats.jsDomain": "hub", "nats.jsPrefix": "from.hub"},
		"nats.embedded.enabled is set with nats.jsDomain":                                                                     {"nats.url": "", "nats.embedded.enabled": true, "nats.jsDomain": "hub"},
		"nats.tls.existingSecret is empty":                                                                                    {"nats.tls.caKey": "ca.crt"},
		"nats.tls.certKey and nats.tls.keyKey must be set together":                                                           {"nats.tls.existingSecret": "s", "nats.tls.certKey": "tls.crt"},
		"nats.existingSecret is set but none of its keys is used":                                                             {"nats.existingSecret": "s"},
		"autoscaling.minReplicas is 5, more than maxReplicas (4)":                                                             byHPA.with(values{"autoscaling.minReplicas": 5}),
		"autoscaling.keda.natsServerMonitoringEndpoint is empty":                                                              {"autoscaling.mode": "keda"},
		"autoscaling.minReplicas is 0, which a HorizontalPodAutoscaler":                                                       byHPA.with(values{"autoscaling.minReplicas": 0}),
		"resources.limits.memory is 300Mi, but these settings need at least 329Mi, including 65Mi for the buffers of batches": {"resources.limits.memory": "300Mi"},
		"resources.limits.memory is 0.5Gi, but these settings need":                                                           {"resources.limits.memory": "0.5Gi", "config.operators": []string{"minhash?hashes=1024&seed=3"}},
		"config.fieldMissing has no effect without config.field":                                                              {"config.fieldMissing": "null"},
		"config.field or config.keepFields has \"a..b\"":                                                                      {"config.field": "a..b"},
		"config.keepFields has \"doc\" and \"doc.id\"":                                                                        {"config.keepFields": []string{"doc.id", "doc"}},
		"config.keepFields is set, and binary results have no fields":                                                         {"config.keepFields": []string{"id"}, "config.resultFormat": "binary"},
		"there can be 9 pods for 8 partitions":                                                                                {"config.delivery": "exclusive", "replicaCount": 9},
		"gpu.count is 2 with gpu.mode=shared":                                                                                 {"gpu.mode": "shared", "gpu.count": 2},
		`operators.sources has "Entropy.cu": name it NAME.cu`:                                                                 {"operators.sources": map[string]string{"Entropy.cu": "x"}},
		`operators.sources has "entropy": name it NAME.cu`:                                                                    {"operators.sources": map[string]string{"entropy": "x"}},
		`operators.sources has "crc32c.cu", and crc32c is the name of a built-in operator`:                                    {"operators.sources": map[string]string{"crc32c.cu": "x"}},
		`operators.sources has "entropy.cu" without a text`:                                                                   {"operators.sources": map[string]string{"entropy.cu": " \n"}},
		"operators.sources and operators.tables have 1048577 bytes, and a ConfigMap holds at most":                            {"operators.sources": map[string]string{"a.cu": strings.Repeat("a", 1<<20-3)}},
		`operators.tables has ".words": use letters`:                                                                          {"operators.sources": map[string]string{"a.cu": "x"}, "operators.tables": map[string]string{".words": "x"}},
		`operators.tables has "b.cu": use letters`:                                                                            {"operators.sources": map[string]string{"a.cu": "x"}, "operators.tables": map[string]string{"b.cu": "x"}},
		"operators.tables has tables, and operators.sources no operator":                                                      {"operators.tables": map[string]string{"w": "x"}},
		"operators.sources has source files, which the image can compile only for a GPU":                                      {"operators.sources": map[string]string{"a.cu": "x"}, "gpu.mode": "none"},
		"operators.sources has source files, which the image can compile only for":                                            {"operators.sources": map[string]string{"a.cu": "x"}, "config.device": "host"},
		"operators.sources has source files, and image.variant=plain has no NVRTC":                                            {"operators.sources": map[string]string{"a.cu": "x"}, "image.variant": "plain"},
		"config.operators names entropie, which isn't built in (crc32c, minhash, quality, neardup)":                           {"operators.sources": map[string]string{"entropy.cu": "x"}, "config.operators": []string{"entropie?bits=5"}},
		"config.operators names entropy, which isn't built in":                                                                {"config.operators": []string{"crc32c", "entropy"}},
		"podMonitor.enabled and serviceMonitor.enabled are both set":                                                          {"podMonitor.enabled": true, "serviceMonitor.enabled": true},
		"extraEnv has MILLRACE_BATCH_BYTES, which the chart sets itself: set config.batchBytes":                               {"extraEnv": []any{map[string]any{"name": "MILLRACE_BATCH_BYTES", "value": "1MiB"}}},
	} {
		_, err := render(t, enough.with(set))
		switch {
		case err == nil:
			t.Errorf("the chart accepts %v", set)
		case !strings.Contains(err.Error(), "1 problem in the values:\n  - "+want):
			t.Errorf("%v: want %q in\n%v", set, want, err)
		}
	}
}

// TestEveryProblemIsNamedAtOnce checks that the chart reports all problems together, as the README shows.
func TestEveryProblemIsNamedAtOnce(t *testing.T) {
	_, err := render(t, values{"autoscaling.mode": "keda"})
	for _, want := range []string{"3 problems", "image.repository is empty", "nats.url is empty", "natsServerMonitoringEndpoint is empty"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in\n%v", want, err)
		}
	}
	if _, shown, ok := strings.Cut(fmt.Sprint(err), "\n"); !ok || !strings.Contains(string(readChart(t, "README.md")), strings.TrimSpace(shown)) {
		t.Errorf("helm/millrace/README.md does not show\n%s", shown)
	}
}
