// Package image tests the Dockerfile at the repository's root without Docker. BuildKit's compiler parses it, its steps
// run in folders, and the tests start the worker from the resulting files. The package is a separate module to keep
// BuildKit out of the worker's dependencies. Run it with `make image-test`, and start reading with play_test.go.
package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerui"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
)

// repository is the root of the tested tree.
var repository = func() string {
	root, err := filepath.Abs("../../..")
	if err != nil {
		panic(err)
	}
	return root
}()

func dockerfile(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// base replaces the registry. Each of its images has an empty configuration. Only a real build checks that the images
// of the Dockerfile exist.
type base struct{}

func (base) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	return ref, digest.FromString(ref), []byte(`{"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"]}}`), nil
}

// compile compiles a Dockerfile with BuildKit. It returns the image's configuration and BuildKit's warnings.
func compile(ctx context.Context, text []byte, args map[string]string) (*dockerspec.DockerOCIImage, []string, error) {
	var warnings []string
	warn := func(rule, _, _, message string, at []parser.Range) {
		warnings = append(warnings, fmt.Sprintf("%s: %s %v", rule, message, at))
	}
	result, err := dockerfile2llb.Dockerfile2LLB(ctx, text, dockerfile2llb.ConvertOpt{
		Config:       dockerui.Config{BuildArgs: args},
		MetaResolver: llb.ImageMetaResolver(base{}),
		Warn:         warn,
	})
	if err != nil {
		return nil, warnings, err
	}
	return result.Image, warnings, nil
}

// TestBuildKitCompilesIt compiles the Dockerfile and checks the image's metadata.
func TestBuildKitCompilesIt(t *testing.T) {
	args := map[string]string{"VERSION": "1.2.3", "COMMIT": "abc", "TAGS": "noembedded", "SOURCE_DATE_EPOCH": "7"}
	image, warnings, err := compile(t.Context(), dockerfile(t), args)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		t.Error(w)
	}
	config := image.Config
	if config.User != "65532:65532" {
		t.Errorf("the image runs as %q, want numbers, because runAsNonRoot accepts only those", config.User)
	}
	if !slices.Equal(config.Entrypoint, []string{"/opt/millrace/worker"}) || len(config.Cmd) != 0 {
		t.Errorf("the image starts %q %q, want the worker itself, because there is no shell", config.Entrypoint, config.Cmd)
	}
	for label, want := range map[string]string{"version": "1.2.3", "revision": "abc", "licenses": "Apache-2.0", "title": "Millrace"} {
		if got := config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	if got := config.Labels["org.opencontainers.image.base.name"]; !strings.Contains(got, "@sha256:") {
		t.Errorf("label base.name is %q, want the name of the base with its digest", got)
	}
	if !slices.Contains(config.Env, "NVIDIA_DRIVER_CAPABILITIES=compute,utility") {
		t.Errorf("the environment is %q: without this variable, the container toolkit doesn't add CUDA's driver files", config.Env)
	}
	for _, e := range config.Env {
		if strings.HasPrefix(e, "NVIDIA_VISIBLE_DEVICES=") {
			t.Errorf("%s in the image assigns GPUs to containers that didn't request any", e)
		}
	}
	if len(config.ExposedPorts) != 1 || len(config.Volumes) != 0 {
		configured, _ := json.Marshal(config)
		t.Errorf("the configuration %s must have one port and no volume", configured)
	}
}

// TestCompilingFindsWhatIsWrong checks that TestBuildKitCompilesIt can fail.
func TestCompilingFindsWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, old, wrong string }{
		{"a flag that is none", "--from=libraries", "--form=libraries"},
		{"an instruction that is none", "ENTRYPOINT", "ENTRYPOINTS"},
		{"an argument that is none", "ARG TAGS=\n", "ARG =\n"},
		{"a base that is not named", "FROM ${GO_IMAGE}", "FROM ${GOLANG}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(string(dockerfile(t)), c.old, c.wrong, 1)
			if text == string(dockerfile(t)) {
				t.Fatalf("the Dockerfile doesn't contain %q", c.old)
			}
			_, warnings, err := compile(t.Context(), []byte(text), nil)
			if err == nil && len(warnings) == 0 {
				t.Error("the mistake was not found")
			}
		})
	}
}

// parse splits the Dockerfile into its stages and the arguments before the first stage.
func parse(t *testing.T) ([]instructions.Stage, map[string]string) {
	t.Helper()
	parsed, err := parser.Parse(strings.NewReader(string(dockerfile(t))))
	if err != nil {
		t.Fatal(err)
	}
	stages, args, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, a := range args {
		for _, pair := range a.Args {
			values[pair.Key] = pair.ValueString()
		}
	}
	return stages, values
}

// TestArchiveOfAReleaseIsTheSameImage compiles the Dockerfile of a release's image archive, which differs only in the
// sources of files.
func TestArchiveOfAReleaseIsTheSameImage(t *testing.T) {
	command := exec.CommandContext(t.Context(), "make", "-s", "-C", repository, "--no-print-directory", "release-dockerfile", "VERSION=1.2.3", "COMMIT=abc")
	text, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte("\nADD root.tar /\n")) || bytes.Contains(text, []byte("--from")) {
		t.Errorf("the Dockerfile doesn't take the files from the archive:\n%s", text)
	}
	want, _, err := compile(t.Context(), dockerfile(t), map[string]string{"VERSION": "1.2.3", "COMMIT": "abc"})
	if err != nil {
		t.Fatal(err)
	}
	got, warnings, err := compile(t.Context(), text, nil)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v %v\n%s", err, warnings, text)
	}
	if !reflect.DeepEqual(got.Config, want.Config) {
		t.Errorf("the image of the archive is configured as %+v, want %+v", got.Config, want.Config)
	}
}
