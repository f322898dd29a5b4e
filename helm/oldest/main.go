// Command oldest reads manifests in YAML from its standard input and decodes them strictly into the types of Kubernetes 1.29. An unknown
// kind, or a field that 1.29 doesn't have, is an error. It skips kinds of the Prometheus operator and of KEDA, which have their own
// versions. helm/test runs it.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	decoded, err := decode(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(decoded, "manifests decoded strictly as Kubernetes 1.29")
}

// decode returns the number of manifests that it decoded. The error joins the errors of all other manifests.
func decode(manifests io.Reader) (decoded int, err error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, apps.AddToScheme, autoscaling.AddToScheme, networking.AddToScheme, policy.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return 0, err
		}
	}
	strict := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var problems []error
	for reader := yaml.NewYAMLReader(bufio.NewReader(manifests)); ; {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return decoded, errors.Join(problems...)
		}
		if err != nil {
			return decoded, err
		}
		var of runtime.TypeMeta
		if err := yaml.Unmarshal(text, &of); err != nil {
			return decoded, err
		}
		if of.Kind == "" || strings.HasPrefix(of.APIVersion, "monitoring.coreos.com/") || strings.HasPrefix(of.APIVersion, "keda.sh/") {
			continue
		}
		if _, _, err := strict.Decode(text, nil, nil); err != nil {
			problems = append(problems, fmt.Errorf("%w in\n%s", err, text))
			continue
		}
		decoded++
	}
}
