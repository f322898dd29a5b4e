package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/strvals"
)

// inRepository runs make in the repository's root and returns its output.
func inRepository(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryInRepository(t, args...)
	if err != nil {
		t.Fatalf("make %v: %v\n%s", args, err, out)
	}
	return out
}

// tryInRepository is like inRepository, but make may fail. It removes variables of an outer make.
func tryInRepository(t *testing.T, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "make", append([]string{"-s", "--no-print-directory", "-C", "../.."}, args...)...)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name != "MAKEFLAGS" && name != "VERSION" && name != "IMAGE" && name != "NVRTC" {
			command.Env = append(command.Env, v)
		}
	}
	out, err := command.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// TestOneVersion shows that the chart pulls the image that `make image` builds and `make image-push` pushes.
func TestOneVersion(t *testing.T) {
	meta := loaded(t).Metadata
	if version := inRepository(t, "version"); version != meta.Version || version != meta.AppVersion {
		t.Errorf("make has version %s, but the chart has version %s with appVersion %s", version, meta.Version, meta.AppVersion)
	}
	const repository = "IMAGE_REPOSITORY=registry.example.com/millrace"
	for nvrtc, set := range map[string]values{"": enough, "1": inline(map[string]string{"a.cu": "x"}, "a")} {
		pulled := workerPod(t, objects(t, set)).Containers[0].Image
		for _, target := range []string{"image", "image-tag", "image-push", "image-name"} {
			if said := inRepository(t, "--dry-run", target, repository, "NVRTC="+nvrtc) + " "; !strings.Contains(said, " "+pulled+" ") {
				t.Errorf("the chart pulls %s, but make %s with NVRTC=%q runs\n%s", pulled, target, nvrtc, said)
			}
		}
	}
}

// TestReleaseHasItsVersionEverywhere packages the chart as make release does. The packaged chart pulls the image of the
// release.
func TestReleaseHasItsVersionEverywhere(t *testing.T) {
	const version = "7.8.9"
	folder := t.TempDir()
	inRepository(t, "release-chart", "VERSION="+version, "RELEASE="+folder)
	packed, err := loader.LoadFile(filepath.Join(folder, "millrace-"+version+".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if packed.Metadata.Version != version || packed.Metadata.AppVersion != version || len(packed.Templates) != len(loaded(t).Templates) || len(packed.Schema) != len(loaded(t).Schema) {
		t.Errorf("version %s, appVersion %s, %d templates", packed.Metadata.Version, packed.Metadata.AppVersion, len(packed.Templates))
	}
	if name := inRepository(t, "image-name", "VERSION="+version); name != "millrace:"+version {
		t.Errorf("the image of the release is %s", name)
	}
}

// TestReleaseIsChecked shows that make release refuses a version that doesn't match the chart's. It also refuses a
// changelog without a section for the version.
func TestReleaseIsChecked(t *testing.T) {
	next := strings.TrimSuffix(loaded(t).Metadata.Version, "-dev")
	for version, want := range map[string]string{
		next: "", next + "-rc.1": "",
		"v" + next: "set it like 0.2.0", next + "+build": "without a plus", "0.2": "VERSION is", "": "VERSION is",
		"99.0.0": "write 99.0.0-dev as version and appVersion into helm/millrace/Chart.yaml first",
	} {
		said, err := tryInRepository(t, "release-check", "VERSION="+version, "DRY_RUN=1")
		if (err == nil) != (want == "") || !strings.Contains(said, want) {
			t.Errorf("VERSION=%q: %v, %q; want %q", version, err, said, want)
		}
	}
	if said, err := tryInRepository(t, "release-check", "VERSION="+next+"-none"); err == nil || !strings.Contains(said, `has no section "## `+next+`-none" with a text`) {
		t.Errorf("without a section in the changelog: %v, %q", err, said)
	}
	if notes := inRepository(t, "release-notes", "VERSION="+next, "DRY_RUN=1"); !strings.HasPrefix(notes, "# Millrace "+next+"\n") || !strings.Contains(notes, "\n### Added\n") || strings.Contains(notes, "\n## ") {
		t.Errorf("the notes are\n%s", notes)
	}
}

// TestHeadingsOfTheChangelog shows that the sections use each heading of Keep a Changelog at most once, in its order.
func TestHeadingsOfTheChangelog(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	order := []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
	last, headings := -1, 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## ") {
			last = -1
		}
		heading, is := strings.CutPrefix(strings.TrimSpace(line), "### ")
		if !is {
			continue
		}
		at := slices.Index(order, heading)
		if at <= last {
			t.Errorf("the heading %q is not one of %q, or not in that order", heading, order)
		}
		last, headings = at, headings+1
	}
	if headings == 0 {
		t.Error("the changelog has no headings")
	}
}

var (
	fence    = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```$")
	helmLine = regexp.MustCompile(`^(?:\$ )?helm (install|upgrade|template) .*\./helm/millrace`)
	onFlag   = regexp.MustCompile(`--kube-version (\S+)`)
	setFlag  = regexp.MustCompile(`--set(-file)? (?:'([^']*)'|(\S+))`)
)

// commandsIn returns the Helm commands in a text's code blocks, each on one line. fails reports for each command
// whether an error follows it.
func commandsIn(text string) (commands []string, fails []bool) {
	for _, block := range fence.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1) {
		lines := strings.Split(block[1], "\n")
		for i, line := range lines {
			if helmLine.MatchString(line) {
				commands = append(commands, line)
				next := lines[min(i+1, len(lines)-1)]
				fails = append(fails, strings.HasPrefix(next, "Error:") || strings.Contains(next, "in the values:"))
			}
		}
	}
	return commands, fails
}

// TestHelmCommandsInDocsWork renders the chart with the values of each Helm command in the documents, plus the required
// values for an upgrade. A command must render unless an error follows it.
func TestHelmCommandsInDocsWork(t *testing.T) {
	files := []string{"../../README.md", "../millrace/README.md"}
	more, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, file := range append(files, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		commands, fails := commandsIn(string(text))
		for i, command := range commands {
			tried++
			if strings.Contains(command, " --reuse-values") {
				t.Errorf("%s: %s\nloses new defaults: use --reset-then-reuse-values", file, command)
			}
			set := map[string]any{}
			if strings.Contains(command, "helm upgrade") {
				set = enough.parsed(t)
			}
			for _, flag := range setFlag.FindAllStringSubmatch(command, -1) {
				value := strings.NewReplacer("...", "example.com/x", "$IMAGE_REPOSITORY", "example.com/x").Replace(flag[2] + flag[3])
				if flag[1] != "" {
					value, _, _ = strings.Cut(value, "=")
					value += "=text"
				}
				if err := strvals.ParseInto(value, set); err != nil {
					t.Fatalf("%s: %s: %v", file, command, err)
				}
			}
			version := oldest
			if on := onFlag.FindStringSubmatch(command); on != nil {
				if version, err = chartutil.ParseKubeVersion(on[1]); err != nil {
					t.Fatalf("%s: %s: %v", file, command, err)
				}
			}
			if _, err := renderAsHelm(t, version, set); (err != nil) != fails[i] {
				t.Errorf("%s: %s\nthe page shows an error: %v; the chart: %v", file, command, fails[i], err)
			}
		}
	}
	if tried < 8 {
		t.Errorf("only %d commands were tried, want at least 8", tried)
	}
}

var (
	clusterLine = regexp.MustCompile(`^(?:\$ )?(?:helm (?:install|upgrade) .*(?:\./|\.tgz)|helm .*(?:test|uninstall) |kubectl )`)
	inNamespace = regexp.MustCompile(` (?:-n|--namespace)[ =]\S`)
)

// pasted returns the mistakes in a page's commands, block by block.
func pasted(text string) (problems []string) {
	for _, block := range fence.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1) {
		installed, rolledOut := false, false
		for line := range strings.Lines(block[1]) {
			line = strings.TrimSpace(line)
			if !clusterLine.MatchString(line) {
				continue
			}
			installed = installed || strings.Contains(line, "helm install ")
			rolledOut = rolledOut || strings.Contains(line, " rollout status ")
			switch {
			case strings.Contains(line, "..."):
				problems = append(problems, "something is left out: "+line)
			case !inNamespace.MatchString(line):
				problems = append(problems, "no namespace: "+line)
			case strings.Contains(line, "helm test ") && installed && !rolledOut:
				problems = append(problems, "it doesn't wait until the workers have created the streams: "+line)
			}
		}
	}
	return problems
}

// TestCommandsForTheClusterCanBePasted checks the pages about the chart and the notes after the installation.
func TestCommandsForTheClusterCanBePasted(t *testing.T) {
	for _, file := range []string{"../../README.md", "../millrace/README.md", "../../docs/kubernetes.md", "../../docs/releasing.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "helm install ") {
			t.Errorf("%s installs nothing", file)
		}
		for _, problem := range pasted(string(text)) {
			t.Errorf("%s: %s", file, problem)
		}
	}
	for name, mode := range modes {
		notes := mustRender(t, enough.with(mode)).notes
		commands := 0
		for line := range strings.Lines(notes) {
			if line = strings.TrimSpace(line); clusterLine.MatchString(line) {
				commands++
			}
		}
		if problems := pasted("```\n" + notes + "```"); len(problems) > 0 || commands < 3 {
			t.Errorf("%s: %d commands: %q", name, commands, problems)
		}
		// A pod or a script may have no terminal.
		if regexp.MustCompile(`exec (?:-it|-ti|-t|--tty)\b`).MatchString(notes) {
			t.Errorf("%s: a command in the notes needs a terminal:\n%s", name, notes)
		}
	}
}

// TestPastedFindsMistakes checks that the function pasted detects mistakes.
func TestPastedFindsMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"helm install a ./b -n c\nhelm test a -n c\n":                                         "doesn't wait",
		"helm install a ./b -n c\nkubectl rollout status deployment/a -n c\nhelm test a -n c": "",
		"helm upgrade a ./b \\\n  --set d=e\n":                                                "no namespace",
		"helm upgrade a ./b \\\n  --namespace c\n":                                            "",
		"kubectl create secret generic a\n":                                                   "no namespace",
		"helm install a ./b -n c --set image.repository=...\n":                                "left out",
	} {
		got := strings.Join(pasted("```\n"+strings.TrimSuffix(text, "\n")+"\n```"), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
