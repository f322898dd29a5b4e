package test

import (
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	resource "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

type object interface {
	runtime.Object
	meta.Object
}

// strict decodes into the registered types, which Kubernetes 1.34 or the operators serve. An unknown or repeated field
// is an error.
var strict = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, apps.AddToScheme, autoscaling.AddToScheme, networking.AddToScheme, policy.AddToScheme, resource.AddToScheme,
		monitoring.AddToScheme, keda.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// decodings is the number of manifests decoded without an error.
var decodings atomic.Int64

func (r rendered) decode(t *testing.T) (list []object) {
	t.Helper()
	for _, m := range r.manifests {
		decoded, _, err := strict.Decode([]byte(m.text), nil, nil)
		if err != nil {
			t.Errorf("%v\n%s", err, m)
			continue
		}
		decodings.Add(1)
		list = append(list, decoded.(object))
	}
	return list
}

func objects(t *testing.T, v values) []object {
	t.Helper()
	return mustRender(t, v).decode(t)
}

// find returns the object of a kind. The test fails unless there is exactly one.
func find[T object](t *testing.T, list []object) (found T) {
	t.Helper()
	n := 0
	for _, o := range list {
		if typed, ok := o.(T); ok {
			found = typed
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d objects of type %T, want 1", n, found)
	}
	return found
}

// has reports whether the list contains an object of a kind.
func has[T object](list []object) bool {
	for _, o := range list {
		if _, ok := o.(T); ok {
			return true
		}
	}
	return false
}

// TestMain prints the number of decoded manifests at the end. It discards Helm's log about wrong values, whose errors
// the tests check.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	status := m.Run()
	fmt.Printf("%d manifests decoded strictly\n", decodings.Load())
	if workerDir != "" {
		if err := os.RemoveAll(workerDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	os.Exit(status)
}

// TestDecodingIsStrict checks that the decoder detects mistakes.
func TestDecodingIsStrict(t *testing.T) {
	for what, text := range map[string]string{
		"an unknown field":   "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\nautomount: false\n",
		"a field twice":      "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\nmetadata: {name: b}\n",
		"a value of a type":  "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: 3}\n",
		"an unknown version": "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaimTemplate\nmetadata: {name: a}\n",
		"an operator's":      "apiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: a}\nspec: {selector: {}, endpoints: []}\n",
		"KEDA's":             "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: a}\nspec: {triggers: [], replicas: 1}\n",
	} {
		if _, _, err := strict.Decode([]byte(text), nil, nil); err == nil {
			t.Errorf("%s is decoded without an error", what)
		}
	}
}
