package test

import (
	"context"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chartutil"
)

// TestMistakesAreErrors sets values that Kubernetes would accept, although no pod would start or work as intended.
func TestMistakesAreErrors(t *testing.T) {
	named := func(name string) []any { return []any{map[string]any{"name": name, "image": "a"}} }
	variable := func(name, value string) []any { return []any{map[string]any{"name": name, "value": value}} }
	policy := func(more values) values { return values{"networkPolicy.enabled": true}.with(more) }
	for want, set := range map[string]values{
		"nats.url begins with http://, which is not a NATS server's address: begin with nats://":                      {"nats.url": "http://nats:4222"},
		"address 2 in nats.url begins with https://":                                                                  {"nats.url": "nats://a:4222,https://b"},
		"nats.url has port 4333, to which networkPolicy permits no connection: set networkPolicy.natsPorts={4":        policy(values{"nats.url": "nats://nats:4333"}),
		"nats.url has port 443, to which":                                                                             policy(values{"nats.url": "wss://nats.example.com"}),
		"extraEnv has OTEL_EXPORTER_OTLP_ENDPOINT with port 4318, to which networkPolicy permits no":                  policy(values{"extraEnv": variable("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel:4318/x")}),
		"resources.limits.memory is 4GiB, which is not a quantity of Kubernetes: write it like 4Gi":                   {"resources.limits.memory": "4GiB"},
		"resources.limits.memory is plenty, which is not a quantity":                                                  {"resources.limits.memory": "plenty"},
		"resources.limits.memory is 2e+08, but these settings need at least":                                          {"resources.limits.memory": 2e8},
		"resources.limits.memory is 2e8, but these settings need at least":                                            {"resources.limits.memory": "2e8"},
		"resources.limits.memory is 700Mi, but these settings need at least 1248Mi":                                   {"resources.limits.memory": "700Mi", "config.decompress": "zstd", "gpu.count": 4},
		"resources.requests.memory is 1Gi, more than resources.limits.memory (512Mi)":                                 {"resources.limits.memory": "512Mi"},
		"config.memoryLimit is 128MiB, but these settings need at least":                                              {"config.memoryLimit": "128MiB"},
		"config.memoryLimit is 8GiB, more than resources.limits.memory (4Gi), so the pod would be killed":             {"config.memoryLimit": "8GiB"},
		"resources.limits has nvidia.com/gpu, which comes from gpu: set gpu.mode and gpu.count":                       {"resources.limits": map[string]any{"nvidia.com/gpu": 2}},
		"resources.requests has nvidia.com/mig-1g.5gb, which comes from gpu":                                          {"gpu.mode": "none", "resources.requests": map[string]any{"nvidia.com/mig-1g.5gb": 1}},
		"config.device is cuda with gpu.mode=none":                                                                    {"gpu.mode": "none", "config.device": "cuda"},
		"gpu.count is 3 with gpu.mode=mig, but CUDA gives a process only one instance":                                {"gpu.mode": "mig", "gpu.count": 3},
		"podMonitor.scrapeTimeout is 10s, more than its interval (5s)":                                                {"podMonitor.enabled": true, "podMonitor.interval": "5s"},
		"config.debugAddr has the port of http.port (9464)":                                                           {"config.debugAddr": "127.0.0.1:9464"},
		"http.port is 4222, on which the server of nats.embedded listens":                                             modes["embedded"].with(values{"http.port": 4222}),
		"nats.embedded.enabled is set with a Secret for NATS":                                                         modes["embedded"].with(values{"nats.existingSecret": "s", "nats.credsKey": "c"}),
		"nats.embedded.sizeLimit is 1Gi, but the streams and their files may take 10240Mi, and Kubernetes evicts":     modes["embedded"].with(values{"nats.embedded.sizeLimit": "1Gi"}),
		"nats.embedded.sizeLimit is 10Gi, but the streams and their files may take 10241Mi":                           modes["embedded"].with(values{"config.streamMaxBytes": "4294967297"}),
		"config.resultMaxBytes is 0 with nats.embedded.enabled, so the stream would grow":                             modes["embedded"].with(values{"config.resultMaxBytes": "0"}),
		"config.provisionStorage is memory with nats.embedded.enabled":                                                modes["embedded"].with(values{"config.provisionStorage": "memory"}),
		"config.debugAddr has port 4222, on which the server of nats.embedded listens":                                modes["embedded"].with(values{"config.debugAddr": "127.0.0.1:4222"}),
		"config.devices names the GPU 2, but a pod has only 2, with ordinals from 0: set config.devices=all":          {"gpu.count": 2, "config.devices": "0,2"},
		"config.devices names the GPU 1, but a pod has only 1":                                                        {"gpu.mode": "mig", "config.devices": "1"},
		"config.operators has neardup with config.delivery=shared":                                                    {"config.operators": []string{"neardup?bands=16"}},
		`config.operators has "neardup?rows=52", whose bands times rows is 1040: set them so that it is at most 1024`: {"config.operators": []string{"neardup?rows=52"}, "config.delivery": "exclusive"},
		"config.operators has neardup with config.exactlyOnce=off":                                                    {"config.operators": []string{"neardup"}, "config.delivery": "exclusive", "config.exactlyOnce": "off"},
		"config.exactlyOnce is required with config.delivery=shared":                                                  {"config.exactlyOnce": "required"},
		"config.resultIds is false with config.delivery=shared":                                                       {"config.resultIds": false},
		"config.resultIds is false with config.exactlyOnce=off":                                                       {"config.delivery": "exclusive", "config.exactlyOnce": "off", "config.resultIds": false},
		"config.commitPrefix (results.c) and config.resultPrefix (results) overlap, so nobody could tell":             {"config.delivery": "exclusive", "config.commitPrefix": "results.c"},
		`config.subjects has "commits.>", which matches commit markers under config.commitPrefix (commits)`:           {"config.delivery": "exclusive", "config.subjects": []string{"commits.>"}},
		"commonLabels has app.kubernetes.io/name, which the chart sets itself: remove it, or set nameOverride":        {"commonLabels": map[string]any{"app.kubernetes.io/name": "a"}},
		"podLabels has app.kubernetes.io/component, which the chart sets itself: remove it":                           {"podLabels": map[string]any{"app.kubernetes.io/component": "a"}},
		"podMonitor.labels and commonLabels both have release: set it in one":                                         {"commonLabels": map[string]any{"release": "a"}, "podMonitor.labels": map[string]any{"release": "b"}},
		"extraEnv has CUDA_CACHE_PATH, which the chart sets itself with gpu.mode=gpu":                                 {"extraEnv": variable("CUDA_CACHE_PATH", "/x")},
		"extraEnv has A twice": {"extraEnv": append(variable("A", "1"), variable("A", "2")...)},
		"extraVolumes has tmp, a name that the chart uses itself":     {"extraVolumes": []any{map[string]any{"name": "tmp", "emptyDir": map[string]any{}}}},
		`extraVolumeMounts mounts "data2", which no volume`:           {"extraVolumeMounts": []any{map[string]any{"name": "data2", "mountPath": "/a"}}},
		"extraContainers has worker, a name that another container":   {"extraContainers": named("worker")},
		"extraContainers has a, a name that another container":        {"initContainers": named("a"), "extraContainers": named("a")},
		"lifecycle.preStop runs sh, which the image doesn't have":     {"lifecycle": map[string]any{"preStop": map[string]any{"exec": map[string]any{"command": []string{"/bin/sh", "-c", "sleep 5"}}}}},
		"lifecycle.preStop.sleep needs Kubernetes 1.30":               {"lifecycle": map[string]any{"preStop": map[string]any{"sleep": map[string]any{"seconds": 5}}}},
		"gpu.mode is dra, which needs resource.k8s.io/v1 of Kubernet": {"gpu.mode": "dra"},
	} {
		_, err := renderFor(t, oldest, enough.with(set))
		switch {
		case err == nil:
			t.Errorf("the chart accepts %v", set)
		case !strings.Contains(err.Error(), "1 problem in the values:\n  - "+want):
			t.Errorf("%v: want %q in\n%v", set, want, err)
		}
	}
}

// TestWhatLooksWrongAndIsNot sets valid values that resemble the mistakes of TestMistakesAreErrors.
func TestWhatLooksWrongAndIsNot(t *testing.T) {
	egress := func(port map[string]any) values {
		return values{"networkPolicy.enabled": true, "nats.url": "tls://nats:4333", "networkPolicy.extraEgress": []any{map[string]any{"ports": []any{port}}}}
	}
	for what, set := range map[string]values{
		"several servers":                  {"nats.url": "nats://a:4222, nats://b , tls://[2001:db8::1]:4222"},
		"without a scheme":                 {"nats.url": "nats:4222"},
		"a port in natsPorts":              {"networkPolicy.enabled": true, "nats.url": "nats://nats:4333", "networkPolicy.natsPorts": []int{4333}},
		"a port in another rule":           egress(map[string]any{"port": 4333}),
		"a port in a range":                egress(map[string]any{"port": 4000, "endPort": 5000}),
		"a port by name":                   egress(map[string]any{"port": "nats"}),
		"any port":                         {"networkPolicy.enabled": true, "nats.url": "nats://nats:4333", "networkPolicy.extraEgress": []any{map[string]any{"to": []any{}}}},
		"memory as a number":               {"resources.limits.memory": 4294967296},
		"memory with an exponent":          {"resources.limits.memory": "4e9"},
		"no memory limit":                  {"resources.limits": nil},
		"operators' subjects beside":       {"config.subjects": []string{"in.a.>", "in.b.*"}, "config.resultPrefix": "in.results", "config.deadletterPrefix": "in.dead"},
		"parameters of operators":          {"config.operators": []string{"minhash?seed=4294967295&k=256&hashes=1"}},
		"sources of one's own":             {"operators.sources": map[string]string{"entropy.cu": "x"}, "config.operators": []string{"entropy?any=thing"}},
		"a stateful operator":              {"config.operators": []string{"neardup"}, "config.delivery": "exclusive"},
		"a file in a volume":               {"operators.volume": map[string]any{"emptyDir": map[string]any{}}, "config.operators": []string{"whatever"}},
		"the same label of a monitor":      {"podMonitor.labels": map[string]any{"release": "b"}, "prometheusRule.labels": map[string]any{"release": "b"}},
		"a scrape timeout in another unit": {"serviceMonitor.enabled": true, "serviceMonitor.interval": "1m", "serviceMonitor.scrapeTimeout": "60s"},
		"small streams in a small volume":  modes["embedded"].with(values{"nats.embedded.sizeLimit": "1Gi", "config.streamMaxBytes": "256MiB", "config.resultMaxBytes": "256MiB", "config.deadletterMaxBytes": "64MiB"}),
		"exactly once without ids":         {"config.delivery": "exclusive", "config.exactlyOnce": "required", "config.resultIds": false, "config.commitPrefix": "marks.a"},
		"inputs on commits, without any":   {"config.delivery": "exclusive", "config.exactlyOnce": "off", "config.subjects": []string{"commits.>"}},
		"no bounds in another server":      {"config.resultMaxBytes": "0", "config.provisionStorage": "memory"},
		"all GPUs of a pod by ordinal":     {"gpu.count": 2, "config.devices": "1,0"},
		"a volume of the chart":            {"extraVolumeMounts": []any{map[string]any{"name": "tmp", "mountPath": "/var/tmp"}}},
		"a command of the worker":          {"lifecycle": map[string]any{"postStart": map[string]any{"exec": map[string]any{"command": []string{"/opt/millrace/worker", "version"}}}}},
	} {
		if _, err := renderFor(t, oldest, enough.with(set)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDRANeedsItsVersion shows that only the mode dra requires a newer Kubernetes. The check also parses the version
// names of cloud providers.
func TestDRANeedsItsVersion(t *testing.T) {
	for version, dra := range map[string]bool{"v1.29.0": false, "v1.33.9-eks-1": false, "v1.34.0": true, "v1.34.1-gke.100": true, "v1.40.0": true} {
		parsed, err := chartutil.ParseKubeVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		for name, mode := range modes {
			_, err := renderFor(t, parsed, enough.with(mode))
			if want := dra || mode["gpu.mode"] != "dra"; (err == nil) != want {
				t.Errorf("%s on %s: %v", name, version, err)
			}
		}
	}
}

// TestChartRefusesWhatTheWorkerRefuses sets wrong values in both the chart and the worker. A value that renders must
// not fail in the pod.
func TestChartRefusesWhatTheWorkerRefuses(t *testing.T) {
	worker := buildWorker(t)
	good := environment(workerPod(t, objects(t, enough)).Containers[0])
	good["MILLRACE_DEVICE"] = "host"
	for _, c := range []struct {
		value string
		wrong []any
		fine  []any
	}{
		{"nats.url",
			[]any{"http://nats:4222", "nats", "nats://", "nats://nats:0", "nats://nats:99999", "nats:x", "nats://a:4222,", "ws://a,nats://b", "tcp://a:1", "nats://a b:1", "nats://[::1:4222"},
			[]any{"nats:4222", "nats://nats", "tls://nats:4443", "ws://a,wss://b/path", "nats://[::1]:4222", "nats://a, nats://b:1"}},
		{"config.subjects",
			[]any{[]string{"a..b"}, []string{"a.>.b"}, []string{"a.b*"}, []string{"$JS.>"}, []string{"_INBOX.a"}, []string{"a.>", "a.b"}, []string{"a.*", "a.b"}, []string{"*.b", "a.*"}, []string{".a"},
				[]string{">"}, []string{"results.>"}, []string{"*.x"}, []string{"*"}, []string{"deadletter.a"}, []string{"results"}},
			[]any{[]string{"a.*", "a.*.b"}, []string{"a.b", "a.c"}, []string{"a.>", "b.>"}, []string{"resultsx.>"}, []string{"_INBOXES.>"}}},
		{"config.resultPrefix", []any{"ingest", "ingest.a", "$SYS", "deadletter", "deadletter.a", "_INBOX"}, []any{"out", "a.b", "deadletters"}},
		{"config.deadletterPrefix", []any{"ingest.dead", "results.dead", "$dead"}, []any{"dead.letters", "result"}},
		{"config.commitPrefix", []any{"$commits", "a..b"}, []any{"a.b", "ingest", "results"}}, // for shared delivery
		{"config.exactlyOnce", []any{"required"}, []any{"off"}},
		{"config.resultIds", []any{false}, []any{true}},
		{"config.operators",
			[]any{[]string{"minhash?hashs=64"}, []string{"minhash?k=0"}, []string{"minhash?k=257"}, []string{"minhash?hashes=1025"}, []string{"minhash?k=a"}, []string{"minhash?k"}, []string{"minhash?k=1&k=2"},
				[]string{"crc32c?k=1"}, []string{"quality?k=1"}, []string{"quality?ngrams=1"}, []string{"quality?ngrams"}, []string{"crc32c", "crc32c"}, []string{"crc64"}, []string{"minhash?seed=-1"}, []string{"minhash?seed=4294967296"}, []string{"minhash?seed=18446744073709551616"}, []string{"minhash?k=+5"}},
			[]any{[]string{"minhash?k=1&hashes=1024&seed=0"}, []string{"minhash?k=007"}, []string{"minhash", "crc32c", "quality"}, []string{"quality?ngrams=true"}, []string{"quality?ngrams=false"}}},
		{"config.linger", []any{"30s", "1m", "30000ms"}, []any{"29.9s", "500ms"}},
		{"config.batchDeadlineMin", []any{"3m", "121s"}, []any{"2m", "120s", "100ms"}},
		{"config.debugAddr", []any{":9464", "127.0.0.1:9464", ":70000"}, []any{":6060", "127.0.0.1:6060"}},
	} {
		for i, value := range slices.Concat(c.wrong, c.fine) {
			want := i < len(c.wrong)
			_, err := render(t, enough.with(values{c.value: value}))
			env := maps.Clone(good)
			env[variableOfValue(c.value)] = textOf(value)
			command := exec.CommandContext(t.Context(), worker, "config")
			for name, set := range env {
				command.Env = append(command.Env, name+"="+set)
			}
			said, refused := command.CombinedOutput()
			if (err != nil) != want || (refused != nil) != want {
				t.Errorf("%s = %v: want it refused: %v. The chart: %v. The worker: %v\n%s", c.value, value, want, err, refused, said)
			}
		}
	}
}

func variableOfValue(value string) string {
	if value == "nats.url" {
		return "MILLRACE_NATS_URL"
	}
	return variableOf(strings.TrimPrefix(value, "config."))
}

// TestFramesNeedTheirMemory shows that the worker doesn't start with a memory limit just below the chart's minimum.
func TestFramesNeedTheirMemory(t *testing.T) {
	worker := buildWorker(t)
	for what, set := range map[string]values{
		"compressed": {"config.decompress": "zstd", "config.framing": "newline_delimited"},
		"arrow":      {"config.framing": "arrow", "config.frameBytes": "256MiB"},
	} {
		set = enough.with(set).with(values{"gpu.mode": "none", "config.provision": true, "nats.url": natsServer(t), "resources.limits.memory": "4Gi", "http.port": freePort(t)})
		_, err := render(t, set.with(values{"resources.limits.memory": "100Mi"}))
		found := needs.FindStringSubmatch(err.Error())
		if found == nil {
			t.Fatalf("%s: %v", what, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a worker that starts runs until the timeout
		defer cancel()
		command := asContainer(ctx, worker, workerPod(t, objects(t, set)).Containers[0])
		command.Env = append(command.Env, "MILLRACE_MEMORY_LIMIT="+found[1]+"MiB")
		if said, err := command.CombinedOutput(); err == nil || !strings.Contains(string(said), "for frames") {
			t.Errorf("%s: the chart requires %s MiB, but the worker starts with less: %v\n%s", what, found[1], err, said)
		}
	}
}
