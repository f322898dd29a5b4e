package test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// watched enables all monitoring features.
var watched = enough.with(values{
	"prometheusRule.enabled": true, "prometheusRule.labels": map[string]any{"release": "prometheus"},
	"dashboard.enabled": true, "networkPolicy.enabled": true,
})

var (
	byPod     = watched.with(values{"podMonitor.enabled": true, "podMonitor.labels": map[string]any{"release": "prometheus"}})
	byService = watched.with(values{"serviceMonitor.enabled": true, "serviceMonitor.interval": "1m"})
)

// picks reports whether a selector matches the labels.
func picks(t *testing.T, selector meta.LabelSelector, of map[string]string) bool {
	t.Helper()
	s, err := meta.LabelSelectorAsSelector(&selector)
	if err != nil {
		t.Fatal(err)
	}
	return !s.Empty() && s.Matches(labels.Set(of))
}

// TestSelectorsPickTheWorkersAlone shows that only the network policy also applies to the pod of helm test, which isn't a worker.
func TestSelectorsPickTheWorkersAlone(t *testing.T) {
	list := objects(t, byPod)
	worker, check := find[*apps.Deployment](t, list).Spec.Template.Labels, find[*core.Pod](t, list).Labels
	for what, selector := range map[string]meta.LabelSelector{
		"Deployment":          *find[*apps.Deployment](t, list).Spec.Selector,
		"PodDisruptionBudget": *find[*policy.PodDisruptionBudget](t, list).Spec.Selector,
		"PodMonitor":          find[*monitoring.PodMonitor](t, list).Spec.Selector,
		"Service":             {MatchLabels: find[*core.Service](t, objects(t, byService)).Spec.Selector},
	} {
		if !picks(t, selector, worker) || picks(t, selector, check) {
			t.Errorf("the %s's selector selects workers: %v, and the pod of helm test: %v; want only workers", what,
				picks(t, selector, worker), picks(t, selector, check))
		}
	}
	if selector := find[*networking.NetworkPolicy](t, list).Spec.PodSelector; !picks(t, selector, worker) || !picks(t, selector, check) {
		t.Error("the NetworkPolicy doesn't select both workers and the pod of helm test")
	}
}

// TestScrapes checks that a monitor scrapes the container's port.
func TestScrapes(t *testing.T) {
	list := objects(t, byPod)
	port := workerPod(t, list).Containers[0].Ports[0].Name
	monitor := find[*monitoring.PodMonitor](t, list)
	if e := monitor.Spec.PodMetricsEndpoints[0]; *e.Port != port || e.Path != "/metrics" || monitor.Labels["release"] != "prometheus" {
		t.Errorf("scrapes %s of port %s, which is %s; labels %v", e.Path, *e.Port, port, monitor.Labels)
	}

	list = objects(t, byService)
	service, through := find[*core.Service](t, list), find[*monitoring.ServiceMonitor](t, list)
	if !picks(t, through.Spec.Selector, service.Labels) {
		t.Errorf("the ServiceMonitor does not select the Service %v", service.Labels)
	}
	if e := through.Spec.Endpoints[0]; e.Port != service.Spec.Ports[0].Name || service.Spec.Ports[0].TargetPort.String() != port || e.Interval != "1m" {
		t.Errorf("scrapes port %s of the Service every %s, whose %s is the container's %s", e.Port, e.Interval, service.Spec.Ports[0].Name, service.Spec.Ports[0].TargetPort.String())
	}
	if has[*monitoring.PodMonitor](list) || has[*core.Service](objects(t, byPod)) {
		t.Error("one monitor also creates the objects of the other")
	}
}

// TestRulesAndDashboardArriveAsTheyAre shows that Helm doesn't interpret the braces of Prometheus and Grafana.
func TestRulesAndDashboardArriveAsTheyAre(t *testing.T) {
	list := objects(t, byPod)
	var file struct{ Groups []monitoring.RuleGroup }
	if err := yaml.UnmarshalStrict(readChart(t, "files/rules.yaml"), &file); err != nil {
		t.Fatalf("files/rules.yaml: %v", err)
	}
	rule := find[*monitoring.PrometheusRule](t, objects(t, ruled)) // without a monitor, queries aren't restricted to a job
	if len(file.Groups) == 0 || !reflect.DeepEqual(rule.Spec.Groups, file.Groups) {
		t.Errorf("%d groups of rules differ from the %d groups of files/rules.yaml", len(rule.Spec.Groups), len(file.Groups))
	}
	var want map[string]any
	if err := json.Unmarshal(readChart(t, "files/dashboard.json"), &want); err != nil {
		t.Fatalf("files/dashboard.json: %v", err)
	}
	if labels := find[*core.ConfigMap](t, list).Labels; labels["grafana_dashboard"] != "1" {
		t.Errorf("Grafana does not find the dashboard: labels %v", labels)
	}
	_, got := dashboardOf(t, mustRender(t, watched)) // without a monitor, it isn't restricted to the release
	got["uid"], got["title"] = want["uid"], want["title"]
	if !reflect.DeepEqual(got, want) {
		t.Error("the ConfigMap's dashboard differs from files/dashboard.json")
	}
}

// dashboardOf returns the file name of the dashboard's ConfigMap, and the dashboard.
func dashboardOf(t *testing.T, r rendered) (file string, dashboard map[string]any) {
	t.Helper()
	c := find[*core.ConfigMap](t, r.decode(t))
	if len(c.Data) != 1 {
		t.Fatalf("%d files, want one", len(c.Data))
	}
	for name, text := range c.Data {
		file = name
		if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
			t.Fatal(err)
		}
	}
	return file, dashboard
}

// TestEachReleaseHasItsDashboard compares the dashboards of several releases. Grafana's sidecar puts the files of all
// releases into one folder, and Grafana refuses equal uids or titles.
func TestEachReleaseHasItsDashboard(t *testing.T) {
	seen := map[any]string{}
	for release, set := range map[string]values{"one": {}, "another": {"fullnameOverride": "web"}, "one of a long name": {"fullnameOverride": strings.Repeat("a", 60)}} {
		file, dashboard := dashboardOf(t, mustRender(t, byPod.with(set)))
		for _, part := range []any{file, dashboard["uid"], dashboard["title"]} {
			if seen[part] != "" {
				t.Errorf("%s and %s both have %v", seen[part], release, part)
			}
			seen[part] = release
		}
		if uid := dashboard["uid"].(string); !regexp.MustCompile(`^[a-z0-9-]{1,40}$`).MatchString(uid) {
			t.Errorf("%s: Grafana refuses the uid %s", release, uid)
		}
	}
}

// TestDashboardShowsItsRelease shows that the dashboard initially selects the release's namespace and pods.
func TestDashboardShowsItsRelease(t *testing.T) {
	_, dashboard := dashboardOf(t, mustRender(t, byPod))
	pods := ""
	for _, v := range dashboard["templating"].(map[string]any)["list"].([]any) {
		switch variable := v.(map[string]any); variable["name"] {
		case "namespace":
			if current := variable["current"].(map[string]any); !reflect.DeepEqual(current["value"], []any{"gpu-jobs"}) {
				t.Errorf("the namespace is %v", current)
			}
		case "pod":
			pods = variable["allValue"].(string)
		}
	}
	for pod, want := range map[string]bool{
		"web-millrace-5d9c7b8f4-x2x9k": true, "web-millrace-5d9c7x2x9k": true,
		"web-millrace-b-5d9c7b8f4-x2x9k": false, "web-millrace2-5d9c7b8f4-x2x9k": false, "web-millrace": false,
	} {
		if got := regexp.MustCompile("^(?:" + pods + ")$").MatchString(pod); got != want { // anchored as in Prometheus
			t.Errorf("%s matches %s: %v, want %v", pods, pod, got, want)
		}
	}
}

func readChart(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRunbooksCanBeReached checks the runbook links with the default address, without an address, and with a configured
// one.
func TestRunbooksCanBeReached(t *testing.T) {
	reached := 0
	for want, set := range map[string]values{
		"https://millrace.example/docs/runbooks/": nil,
		"docs/runbooks/":                         {"prometheusRule.runbooks": ""},
		"https://git.example.com/docs/runbooks/": {"prometheusRule.runbooks": "https://git.example.com/docs/runbooks/"},
	} {
		rule := find[*monitoring.PrometheusRule](t, objects(t, byPod.with(set)))
		for _, group := range rule.Spec.Groups {
			for _, r := range group.Rules {
				if r.Alert == "" {
					continue
				}
				reached++
				if got := r.Annotations["runbook_url"]; got != want+r.Alert+".md" {
					t.Errorf("%s: its runbook is at %q, want it in %s", r.Alert, got, want)
				}
			}
		}
	}
	if reached == 0 {
		t.Error("there are no alerts")
	}
}

// TestNetworkIsClosed checks that the policy permits only the configured traffic.
func TestNetworkIsClosed(t *testing.T) {
	peer := []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"name": "monitoring"}}}}
	policy := find[*networking.NetworkPolicy](t, objects(t, watched.with(values{
		"networkPolicy.from": peer, "networkPolicy.natsTo": peer, "networkPolicy.natsPorts": []int{4222, 443}, "networkPolicy.dnsTo": peer,
		"networkPolicy.extraEgress": []any{map[string]any{"ports": []any{map[string]any{"port": 4318}}}},
	}))).Spec
	if len(policy.PolicyTypes) != 2 || len(policy.Ingress) != 1 || len(policy.Ingress[0].From) != 1 || policy.Ingress[0].Ports[0].Port.String() != "http" {
		t.Errorf("the policy permits the ingress %+v", policy.Ingress)
	}
	ports := map[string]bool{}
	for _, rule := range policy.Egress {
		for _, p := range rule.Ports {
			protocol := core.ProtocolTCP // the default
			if p.Protocol != nil {
				protocol = *p.Protocol
			}
			ports[p.Port.String()+"/"+string(protocol)] = true
		}
	}
	// DNS uses TCP for responses that exceed UDP's limit.
	if len(policy.Egress[0].To) != 1 {
		t.Errorf("the policy permits DNS to %v", policy.Egress[0].To)
	}
	if want := map[string]bool{"53/UDP": true, "53/TCP": true, "4222/TCP": true, "443/TCP": true, "4318/TCP": true}; !maps.Equal(ports, want) || len(policy.Egress[1].To) != 1 {
		t.Errorf("the policy permits egress to %v, want %v; NATS at %v", ports, want, policy.Egress[1].To)
	}
}

// TestWindowOfOperatorFaults shows that the alert's window is the chart's value, and the default matches the file.
func TestWindowOfOperatorFaults(t *testing.T) {
	for set, want := range map[string]values{"time() - 3600": nil, "time() - 900": {"prometheusRule.operatorFaultsWindow": 900}} {
		found := 0
		for _, group := range find[*monitoring.PrometheusRule](t, objects(t, byPod.with(want))).Spec.Groups {
			for _, r := range group.Rules {
				if r.Alert == "MillraceOperatorFaults" && strings.HasSuffix(r.Expr.String(), set) {
					found++
				}
			}
		}
		if found != 1 {
			t.Errorf("%d alerts end with %q", found, set)
		}
	}
}
