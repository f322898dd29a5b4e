package test

import (
	"testing"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
)

// TestWhatAPodGets checks the resources that each mode requests from the scheduler.
func TestWhatAPodGets(t *testing.T) {
	for _, c := range []struct {
		mode              string
		set               values
		resource          core.ResourceName // empty for a mode without devices
		count             int64
		device, visible   string
		claims, tolerates bool
	}{
		{mode: "gpu", resource: "nvidia.com/gpu", count: 1, device: "cuda", tolerates: true},
		{mode: "gpu", set: values{"gpu.count": 8, "gpu.resource": "amd.com/gpu"}, resource: "amd.com/gpu", count: 8, device: "cuda", tolerates: true},
		{mode: "mig", resource: "nvidia.com/mig-1g.10gb", count: 1, device: "cuda", tolerates: true},
		{mode: "mig", set: values{"gpu.mig.resource": "nvidia.com/mig-3g.40gb"}, resource: "nvidia.com/mig-3g.40gb", count: 1, device: "cuda", tolerates: true},
		{mode: "shared", resource: "nvidia.com/gpu.shared", count: 1, device: "cuda", tolerates: true},
		{mode: "dra", device: "cuda", visible: "void", claims: true, tolerates: true},
		{mode: "none", device: "host", visible: "void"},
		{mode: "none", set: values{"config.device": "auto"}, device: "auto", visible: "void"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			list := objects(t, enough.with(c.set).with(values{"gpu.mode": c.mode}))
			pod := workerPod(t, list)
			asked := extended(pod.Containers[0].Resources)
			if c.resource == "" && len(asked) > 0 || c.resource != "" && (len(asked) != 1 || asked[c.resource] != c.count) {
				t.Errorf("the pod requests %v, want %d of %q", asked, c.count, c.resource)
			}
			env := environment(pod.Containers[0])
			if env["MILLRACE_DEVICE"] != c.device || env["NVIDIA_VISIBLE_DEVICES"] != c.visible {
				t.Errorf("MILLRACE_DEVICE=%q NVIDIA_VISIBLE_DEVICES=%q, want %q and %q", env["MILLRACE_DEVICE"], env["NVIDIA_VISIBLE_DEVICES"], c.device, c.visible)
			}
			if got := len(pod.ResourceClaims) == 1 && len(pod.Containers[0].Resources.Claims) == 1; got != c.claims {
				t.Errorf("the pod claims a device: %v, want %v", got, c.claims)
			}
			if got := has[*resource.ResourceClaimTemplate](list); got != c.claims {
				t.Errorf("the chart creates a ResourceClaimTemplate: %v, want %v", got, c.claims)
			}
			if got := len(pod.Tolerations) == 1 && pod.Tolerations[0].Key == "nvidia.com/gpu"; got != c.tolerates {
				t.Errorf("the pod tolerates the taint of GPU nodes: %v, want %v", got, c.tolerates)
			}
		})
	}
}

// extended returns the requested resources other than CPU and memory.
func extended(r core.ResourceRequirements) map[core.ResourceName]int64 {
	asked := map[core.ResourceName]int64{}
	for name, quantity := range r.Limits {
		if name != core.ResourceCPU && name != core.ResourceMemory {
			asked[name] = quantity.Value()
		}
	}
	return asked
}

// TestClaims checks the names that connect a pod with its device.
func TestClaims(t *testing.T) {
	list := objects(t, enough.with(values{"gpu.mode": "dra", "gpu.count": 2, "gpu.dra.deviceClassName": "mig.nvidia.com", "gpu.dra.selectors": []string{"a", "b"}}))
	pod, template := workerPod(t, list), find[*resource.ResourceClaimTemplate](t, list)
	claim := pod.ResourceClaims[0]
	if *claim.ResourceClaimTemplateName != template.Name || pod.Containers[0].Resources.Claims[0].Name != claim.Name {
		t.Errorf("the pod claims %q of template %q, the container %q, and the template is %q",
			claim.Name, *claim.ResourceClaimTemplateName, pod.Containers[0].Resources.Claims[0].Name, template.Name)
	}
	request := template.Spec.Spec.Devices.Requests[0].Exactly
	if request.DeviceClassName != "mig.nvidia.com" || request.Count != 2 || len(request.Selectors) != 2 || request.Selectors[1].CEL.Expression != "b" {
		t.Errorf("the template requests %+v", request)
	}

	list = objects(t, enough.with(modes["dra of a claim"]))
	if got := *workerPod(t, list).ResourceClaims[0].ResourceClaimTemplateName; got != "mine" || has[*resource.ResourceClaimTemplate](list) {
		t.Errorf("with an existing template, the pod claims from %q, and the chart creates another template: %v", got, has[*resource.ResourceClaimTemplate](list))
	}
}

// TestCheckRunsWhereWorkersDo shows that the pod of helm test can run on the workers' nodes, although it requests no GPU.
func TestCheckRunsWhereWorkersDo(t *testing.T) {
	for mode, want := range map[string]int{"gpu": 2, "dra": 2, "none": 1} {
		list := objects(t, enough.with(values{"gpu.mode": mode, "tolerations": []map[string]string{{"key": "mine", "operator": "Exists"}}}))
		if got := len(find[*core.Pod](t, list).Spec.Tolerations); got != want {
			t.Errorf("%s: %d tolerations, want %d", mode, got, want)
		}
	}
}
