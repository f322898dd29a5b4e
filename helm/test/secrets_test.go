package test

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// TestCredentialsAreFiles shows that each variable with a file path refers to the volume that contains the file.
func TestCredentialsAreFiles(t *testing.T) {
	of := values{"nats.existingSecret": "nats"}
	for _, c := range []struct {
		set  values
		want map[string]string // maps a variable to its Secret and key
	}{
		{of.with(values{"nats.credsKey": "user.creds"}), map[string]string{"CREDS": "nats/user.creds"}},
		{of.with(values{"nats.nkeyKey": "seed"}), map[string]string{"NKEY": "nats/seed"}},
		{of.with(values{"nats.tls.caKey": "ca.crt"}), map[string]string{"TLS_CA": "nats/ca.crt"}},
		{of.with(values{"nats.credsKey": "c", "nats.tls.existingSecret": "tls", "nats.tls.caKey": "ca.crt", "nats.tls.certKey": "tls.crt", "nats.tls.keyKey": "tls.key"}),
			map[string]string{"CREDS": "nats/c", "TLS_CA": "tls/ca.crt", "TLS_CERT": "tls/tls.crt", "TLS_KEY": "tls/tls.key"}},
		{values{}, map[string]string{}},
	} {
		pod := workerPod(t, objects(t, enough.with(c.set)))
		got := map[string]string{}
		for name, value := range environment(pod.Containers[0]) {
			if file, ok := strings.CutPrefix(name, "MILLRACE_NATS_"); ok && path.IsAbs(value) {
				got[file] = behind(pod, value)
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%v: files %v, want %v", c.set, got, c.want)
		}
	}
}

// behind returns the Secret and key of a file in the first container, or "" if no Secret contains it.
func behind(pod core.PodSpec, file string) string {
	for _, mount := range pod.Containers[0].VolumeMounts {
		if path.Dir(file) != mount.MountPath || !mount.ReadOnly || mount.SubPath != "" { // a subPath mount doesn't get updates
			continue
		}
		for _, volume := range pod.Volumes {
			if volume.Name != mount.Name || volume.Secret == nil {
				continue
			}
			for _, item := range volume.Secret.Items {
				if item.Path == path.Base(file) {
					return volume.Secret.SecretName + "/" + item.Key
				}
			}
		}
	}
	return ""
}

func TestAddressFromASecret(t *testing.T) {
	env := workerEnvironment(t, enough.with(values{"nats.url": "", "nats.existingSecret": "nats", "nats.urlKey": "url"}))
	if got := env["MILLRACE_NATS_URL"]; got != "nats/url" {
		t.Errorf("MILLRACE_NATS_URL comes from %q, want nats/url", got)
	}
}

// TestWorkersAreConfined shows that in every mode, all pods meet the Pod Security Standard "restricted" and more,
// including the pod of helm test.
func TestWorkersAreConfined(t *testing.T) {
	for name, mode := range modes {
		list := objects(t, enough.with(mode))
		pods := map[string]core.PodSpec{"worker": workerPod(t, list)}
		for _, o := range list {
			if pod, ok := o.(*core.Pod); ok { // pod of helm test
				pods[pod.Name] = pod.Spec
			}
		}
		if len(pods) < 2 {
			t.Errorf("%s: %d pods", name, len(pods))
		}
		for what, pod := range pods {
			for _, complaint := range loose(pod) {
				t.Errorf("%s, %s: %s", name, what, complaint)
			}
		}
		account := find[*core.ServiceAccount](t, list)
		if *account.AutomountServiceAccountToken {
			t.Errorf("%s: the ServiceAccount's token is mounted", name)
		}
	}
}

// loose returns the unnecessary privileges of a pod.
func loose(pod core.PodSpec) (found []string) {
	check := func(tight bool, complaint string) {
		if !tight {
			found = append(found, complaint)
		}
	}
	check(pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken, "a token is mounted")
	check(pod.EnableServiceLinks != nil && !*pod.EnableServiceLinks, "a Service called millrace becomes a variable of the worker")
	check(!pod.HostNetwork && !pod.HostPID && !pod.HostIPC, "shares something of the host")
	check(*pod.SecurityContext.RunAsNonRoot && *pod.SecurityContext.RunAsUser > 0, "may run as root")
	check(pod.SecurityContext.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault, "no seccomp profile")
	for _, volume := range pod.Volumes {
		check(volume.HostPath == nil, "mounts a path of the host")
		check(volume.EmptyDir == nil || volume.EmptyDir.SizeLimit != nil, volume.Name+" has no limit")
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		check(*s.ReadOnlyRootFilesystem, "can write to its root")
		check(!*s.AllowPrivilegeEscalation && s.Privileged == nil, "may become more than it is")
		check(slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) && len(s.Capabilities.Add) == 0, "has capabilities")
	}
	return found
}
