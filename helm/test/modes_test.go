package test

import (
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	apps "k8s.io/api/apps/v1"
)

// modes are the tested configurations of the chart.
var modes = map[string]values{
	"gpu":             {},
	"several GPUs":    {"gpu.count": 4},
	"mig":             {"gpu.mode": "mig"},
	"shared":          {"gpu.mode": "shared"},
	"dra":             {"gpu.mode": "dra"},
	"dra of a claim":  {"gpu.mode": "dra", "gpu.dra.existingResourceClaimTemplate": "mine"},
	"dra by selector": {"gpu.mode": "dra", "gpu.dra.selectors": []string{`device.attributes["gpu.nvidia.com"].architecture == "Hopper"`}},
	"none":            {"gpu.mode": "none"},
	"streams":         {"config.stream": "A,IN-*", "config.resultStream": "OUT-{0}"},
	"embedded":        {"nats.url": "", "nats.embedded.enabled": true, "gpu.mode": "none"},
	"keda":            {"autoscaling.mode": "keda", "autoscaling.keda.natsServerMonitoringEndpoint": "nats:8222"},
	"hpa":             {"autoscaling.mode": "hpa", "autoscaling.hpa.metricLabels": map[string]any{"deployment": "web-millrace"}},
	"operators": {
		"operators.sources": map[string]string{"entropy.cu": "x", "a_b.cu": "y"}, "operators.tables": map[string]string{"words.txt": "z\n"}, "config.operators": []string{"entropy?bits=5", "crc32c"},
		"operators.configMap": "mine", "operators.volume": map[string]any{"emptyDir": map[string]any{"sizeLimit": "1Mi"}},
	},
	"additions": {
		"envFrom": []any{map[string]any{"configMapRef": map[string]any{"name": "otel"}}}, "imagePullSecrets": []any{map[string]any{"name": "pull"}},
		"initContainers": []any{confined("fetch")}, "extraContainers": []any{confined("shipper")},
		"lifecycle":    map[string]any{"preStop": map[string]any{"httpGet": map[string]any{"path": "/readyz", "port": "http"}}},
		"dnsPolicy":    "ClusterFirst",
		"dnsConfig":    map[string]any{"searches": []string{"example.com"}, "options": []any{map[string]any{"name": "ndots", "value": "2"}}},
		"hostAliases":  []any{map[string]any{"ip": "10.0.0.1", "hostnames": []string{"nats"}}},
		"extraObjects": []any{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web-more}\n"}, "schedulerName": "volcano",
		"commonLabels": map[string]any{"team": "search"}, "deploymentAnnotations": map[string]any{"a": "b"},
	},
}

// confined returns a container that meets the Pod Security Standard "restricted".
func confined(name string) map[string]any {
	return map[string]any{"name": name, "image": "registry.example.com/" + name + ":1", "securityContext": map[string]any{
		"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": map[string]any{"drop": []string{"ALL"}},
	}}
}

func TestEveryModeIsDecodedStrictly(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			list := objects(t, enough.with(mode))
			find[*apps.Deployment](t, list)
			if got, want := has[*keda.ScaledObject](list), name == "keda"; got != want {
				t.Errorf("a ScaledObject: %v, want %v", got, want)
			}
		})
	}
}
