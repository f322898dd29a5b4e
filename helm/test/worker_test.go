package test

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// TestWorkerTakesWhatTheChartSets runs `worker config`, which checks the variables of every mode and a value other than
// the default for each.
func TestWorkerTakesWhatTheChartSets(t *testing.T) {
	worker := buildWorker(t)
	sets := maps.Clone(modes)
	delete(sets, "operators")                                                                      // these need files: see TestWorkerTakesOperatorsFromAVolume
	sets["other values"] = modes["dra of a claim"].with(values{"resources.limits.memory": "16Gi"}) // config.devices may name any GPU if their number is unknown
	for key, other := range changed {
		sets["other values"]["config."+key] = other.value
	}
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		list := objects(t, enough.with(sets[name]))
		for what, pod := range map[string]core.PodSpec{"worker": workerPod(t, list), "check": find[*core.Pod](t, list).Spec} {
			c := pod.Containers[0]
			c.Args = []string{"config"}
			said, err := asContainer(t.Context(), worker, c).CombinedOutput()
			if err != nil {
				t.Errorf("%s, %s: %v\n%s", name, what, err, said)
			}
			taken := regexp.MustCompile(`(?m)^(MILLRACE_\S+) .*  set  `).FindAllSubmatch(said, -1)
			if want := len(ours(environment(c))); len(taken) != want {
				t.Errorf("%s, %s: the worker reads %d variables, but %d are set\n%s", name, what, len(taken), want, said)
			}
		}
	}
}

func ours(set map[string]string) (names []string) {
	for name := range set {
		if ok, _ := path.Match("MILLRACE_*", name); ok {
			names = append(names, name)
		}
	}
	return names
}

var (
	wholeNumber = regexp.MustCompile(`^a whole number from (\d+) to (\d+)$`)
	wordList    = regexp.MustCompile(`^([a-z_]+(?:, [a-z_]+)*) or ([a-z_]+)$`)
)

// TestBoundsAreTheWorkers shows that the schema accepts the same numbers and words as the worker.
func TestBoundsAreTheWorkers(t *testing.T) {
	config := schemaNode(t).Properties["config"].Properties
	known := workerVariables(t)
	compared := 0
	for key, part := range config {
		takes := known[variableOf(key)].takes
		if bounds := wholeNumber.FindStringSubmatch(takes); bounds != nil {
			compared++
			if got := []string{part.Minimum.String(), part.Maximum.String()}; !slices.Equal(got, bounds[1:]) {
				t.Errorf("config.%s is from %s to %s in the schema, but the worker accepts %s", key, got[0], got[1], takes)
			}
		}
		if words := wordList.FindStringSubmatch(takes); words != nil && part.Type != "boolean" {
			compared++
			want := append(strings.Split(words[1], ", "), words[2])
			got := slices.DeleteFunc(slices.Clone(part.Enum), func(word string) bool { return word == "" })
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("config.%s is one of %q in the schema, but the worker accepts %s", key, got, takes)
			}
		}
	}
	if compared < 10 {
		t.Errorf("only %d bounds were compared, want at least 10: has docs/configuration.md changed its form?", compared)
	}
}

func variableOf(key string) string {
	return "MILLRACE_" + strings.ToUpper(regexp.MustCompile("[A-Z]").ReplaceAllString(key, "_$0"))
}
