package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// TestBuiltInOperatorsAreTheWorkers shows that the chart and the worker have the same built-in operators, which need no file.
func TestBuiltInOperatorsAreTheWorkers(t *testing.T) {
	listed, err := exec.CommandContext(t.Context(), buildWorker(t), "operator", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, found := range regexp.MustCompile(`(?m)^([a-z0-9_]+), version \d+, built in`).FindAllSubmatch(listed, -1) {
		want = append(want, string(found[1]))
	}
	_, err = render(t, enough.with(values{"config.operators": []string{"nothing"}}))
	if err == nil || !strings.Contains(err.Error(), "built in ("+strings.Join(want, ", ")+")") {
		t.Errorf("the worker's operators are %v, but the chart says\n%v", want, err)
	}
}

// TestNamesOfOperatorsAreTheWorkers shows that the chart accepts the same operator names as the worker.
func TestNamesOfOperatorsAreTheWorkers(t *testing.T) {
	worker, folder := buildWorker(t), t.TempDir()
	taken := 0
	for _, name := range []string{
		"a", "a1", "a_b", "entropy", strings.Repeat("a", 31), strings.Repeat("a", 32), "1a", "_a", "a_", "A", "aB", "a-b", "a.b", "a b", "ä", ".a",
	} {
		_, err := render(t, inline(map[string]string{name + ".cu": "x"}, "crc32c"))
		refused := exec.CommandContext(t.Context(), worker, "operator", "new", name, "--in", folder).Run()
		if (err == nil) != (refused == nil) {
			t.Errorf("%q: the chart says %v, but the worker says %v", name, err, refused)
		}
		if err == nil {
			taken++
		}
	}
	if taken != 5 {
		t.Errorf("%d names are accepted, want 5", taken)
	}
}

// builtForCPU returns a folder with an example and its CPU library, like a volume.
func builtForCPU(t *testing.T, worker, name string) string {
	t.Helper()
	if _, err := exec.LookPath("c++"); err != nil {
		t.Skip("SKIPPED: no C++ compiler, so user-written operators aren't tested with the worker")
	}
	folder := t.TempDir()
	source := filepath.Join(folder, name+".cu")
	if err := os.WriteFile(source, []byte(exampleSource(t, name)), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), worker, "operator", "build", source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return folder
}

// inContainer runs the worker as a container that mounts folder as its operator volume.
func inContainer(t *testing.T, worker, folder string, c core.Container, args ...string) (said string, err error) {
	t.Helper()
	c.Args, c.Env = args, slices.Clone(c.Env)
	for i := range c.Env {
		if c.Env[i].Name == "MILLRACE_OPERATOR_PATH" {
			c.Env[i].Value = strings.ReplaceAll(c.Env[i].Value, "/etc/millrace/operators/volume", folder)
		}
	}
	out, err := asContainer(t.Context(), worker, c).CombinedOutput()
	return string(out), err
}

// ownOnCPU returns values for operators in a volume on the CPU.
func ownOnCPU(operators ...string) values {
	return enough.with(values{
		"gpu.mode": "none", "config.operators": operators, "operators.volume": map[string]any{"emptyDir": map[string]any{"sizeLimit": "1Mi"}},
	})
}

// TestWorkerTakesOperatorsFromAVolume runs `worker config`, and `worker check` as helm test does.
func TestWorkerTakesOperatorsFromAVolume(t *testing.T) {
	worker := buildWorker(t)
	folder := builtForCPU(t, worker, "entropy")
	list := objects(t, ownOnCPU("entropy?bits=5", "crc32c").with(values{"nats.url": natsServer(t), "config.provision": true}))
	if said, err := inContainer(t, worker, folder, workerPod(t, list).Containers[0], "config"); err != nil || !strings.Contains(said, "entropy?bits=5,crc32c") {
		t.Errorf("%v\n%s", err, said)
	}
	c := podsOf(list, "check")[0].Spec.Containers[0]
	if said, err := inContainer(t, worker, folder, c, c.Args...); err != nil || !strings.Contains(said, " 0 errors") {
		t.Errorf("%v\n%s", err, said)
	}
}

var needs = regexp.MustCompile(`these settings need (?:at least )?(\d+) ?Mi`)

// TestMemoryIsTheWorkers compares the chart's memory minimum with the worker's, for operators whose result sizes are values. The chart's minimum may
// be lower by a tenth, because it ignores frames, payloads, and the alignment of results.
func TestMemoryIsTheWorkers(t *testing.T) {
	worker := buildWorker(t)
	minimum := func(message string) int {
		found := needs.FindStringSubmatch(message)
		if found == nil {
			t.Fatalf("no memory in\n%s", message)
		}
		mib, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return mib
	}
	for _, c := range []struct {
		operator           string
		perRecord, perByte int // sizes as in docs/operators-kubernetes.md
		builtIn            string
	}{
		{"entropy", 5, 0, "minhash?hashes=512"}, // uint32 and status
		{"redact", 9, 1, "minhash?hashes=512"},  // two uint32 (one is the length of a byte string) and status
		{"entropy", 5, 0, "quality?ngrams=true"},
	} {
		folder := builtForCPU(t, worker, c.operator)
		set := ownOnCPU(c.operator, c.builtIn).with(values{
			"operators.results.perRecord": c.perRecord, "operators.results.perByte": c.perByte, "config.lanes": 4, "config.batchBytes": "8MiB",
		})
		limited := workerPod(t, objects(t, set)).Containers[0]
		limited.Env = append(limited.Env, core.EnvVar{Name: "MILLRACE_MEMORY_LIMIT", Value: "64MiB"})
		said, err := inContainer(t, worker, folder, limited, "check")
		if err == nil {
			t.Fatalf("the worker accepts 64 MiB:\n%s", said)
		}
		for _, limit := range []values{{"resources.limits.memory": "64Mi"}, {"config.memoryLimit": "64MiB"}} {
			_, refused := render(t, set.with(limit))
			if refused == nil {
				t.Fatal("the chart accepts 64 MiB")
			}
			if chart, own := minimum(refused.Error()), minimum(said); chart > own || chart < own*9/10 {
				t.Errorf("%s and %s: the chart requires %d MiB, and the worker %d", c.operator, c.builtIn, chart, own)
			}
		}
	}
}
