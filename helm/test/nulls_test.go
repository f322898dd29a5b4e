package test

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// everything contains configurations that together use every part of the chart.
var everything = map[string]values{
	"services": byService.with(modes["additions"]).with(modes["operators"]),
	"measured": enough.with(measured),
	"hpa": {"image.repository": "millrace", "nats.existingSecret": "s", "nats.urlKey": "u", "nats.credsKey": "c", "nats.tls.caKey": "ca.crt",
		"autoscaling.mode": "hpa", "podMonitor.enabled": true, "prometheusRule.enabled": true},
	"embedded": {"image.repository": "millrace", "nats.embedded.enabled": true, "gpu.mode": "none"},
	"dra":      byKEDA.with(values{"config.delivery": "exclusive", "gpu.mode": "dra"}),
}

// paths returns the path of each value below v, including maps and nested values.
func paths(prefix string, v map[string]any) (list []string) {
	for _, key := range slices.Sorted(maps.Keys(v)) {
		list = append(list, prefix+key)
		if inner, ok := v[key].(map[string]any); ok {
			list = append(list, paths(prefix+key+".", inner)...)
		}
	}
	return list
}

// removable lists non-empty values that null removes. Kubernetes works without them or has its own defaults.
var removable = []string{
	"resources", "probes.startup", "probes.liveness", "probes.readiness", "podSecurityContext", "securityContext", "strategy", "autoscaling.behavior",
	"gpu.tolerations", "dashboard.labels",
}

// isRemovable reports whether a value or one of its parent maps is removable.
func isRemovable(at string) bool {
	return slices.ContainsFunc(removable, func(value string) bool { return at == value || strings.HasPrefix(at, value+".") })
}

func valueAt(t *testing.T, at string) any {
	t.Helper()
	var v any = loaded(t).Values
	for step := range strings.SplitSeq(at, ".") {
		v = v.(map[string]any)[step]
	}
	return v
}

// isEmpty reports whether a default is empty. null has no effect on such a value.
func isEmpty(standard any) bool {
	switch v := standard.(type) {
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	case bool:
		return !v
	case float64:
		return v == 0
	}
	return standard == nil
}

// touches reports whether v sets the value, a part of it, or one of its parents.
func (v values) touches(at string) bool {
	for set := range v {
		if set == at || strings.HasPrefix(set, at+".") || strings.HasPrefix(at, set+".") {
			return true
		}
	}
	return false
}

// TestNullIsRenderedOrRefused sets each value to null, as people do to remove a default. A key without a value in a
// file does the same. Empty defaults remain, and errors for other values name the null.
func TestNullIsRenderedOrRefused(t *testing.T) {
	tried := 0
	for _, at := range paths("", loaded(t).Values) {
		t.Run(at, func(t *testing.T) {
			if !isTaken(t, at) {
				tried++
				refusesNull(t, at)
				return
			}
			for name, base := range everything {
				if !base.touches(at) {
					tried++
					takesNull(t, name, base, at)
				}
			}
		})
	}
	if tried < 500 {
		t.Errorf("only %d nulls were tried, want at least 500", tried)
	}
}

// refusesNull checks that the chart refuses null for a required value.
func refusesNull(t *testing.T, at string) {
	t.Helper()
	_, err := renderAsHelm(t, oldest, values{at: nil}.parsed(t))
	switch {
	case err == nil:
		t.Errorf("the chart accepts null, although the default is %v", valueAt(t, at))
	case !strings.Contains(err.Error(), "- "+at+" is null, ") && !isMissing(err.Error(), at) && !strings.Contains(err.Error(), ", or "+at+" is null: "):
		t.Errorf("the error doesn't name the value: %v", err)
	}
}

// takesNull checks that the chart accepts null for an optional value.
func takesNull(t *testing.T, name string, base values, at string) {
	t.Helper()
	version := oldest
	if base["gpu.mode"] == "dra" {
		version = oldestDRA
	}
	r, err := renderAsHelm(t, version, base.with(values{at: nil}).parsed(t))
	if err != nil {
		t.Fatalf("%s: the chart refuses null: %v", name, err)
	}
	r.decode(t)
	for _, m := range append(r.manifests, manifest{from: "NOTES.txt", text: r.notes}) {
		if m.from == "templates/dashboard.yaml" {
			continue // Grafana allows nulls here
		}
		for _, hole := range []string{"<no value>", "<nil>", ": null", "%!"} {
			if strings.Contains(m.text, hole) {
				t.Errorf("%s: %q in %s", name, hole, m)
			}
		}
	}
}

// isTaken reports whether a value may be null, because it is empty by default or removable.
func isTaken(t *testing.T, at string) bool {
	t.Helper()
	if strings.HasPrefix(at, "prometheusRule.alerts.") {
		return false
	}
	return isEmpty(valueAt(t, at)) && at != "global" || isRemovable(at)
}

// isMissing reports whether an error of the schema checker names a missing value.
func isMissing(message, at string) bool {
	i := strings.LastIndex(at, ".")
	return i > 0 && strings.Contains(message, "at '/"+strings.ReplaceAll(at[:i], ".", "/")+"': missing property '"+at[i+1:]+"'")
}
