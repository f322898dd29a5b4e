package runbooks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// incident lists the pages that people open during an incident.
var incident = []string{"runbooks/*.md", "troubleshooting.md"}

// TestRunbooksHaveCommands shows that every page has commands in sh blocks.
func TestRunbooksHaveCommands(t *testing.T) {
	for _, p := range read(t, "runbooks/*.md") {
		if !slices.ContainsFunc(p.blocks(), func(b block) bool { return b.language == "sh" }) {
			t.Errorf("%s has no block of commands", p.name)
		}
	}
}

// problems returns the mistakes in a block of commands, except syntax errors.
func problems(text string) (found []string) {
	set := map[string]bool{"1": true, "!": true}
	for line := range strings.Lines(text) {
		command, _, _ := strings.Cut(strings.TrimSpace(line), " # ")
		for _, word := range unquoted.FindAllString(command, -1) {
			found = append(found, "in place of "+word+", use a variable: "+command)
		}
		for _, use := range used.FindAllStringSubmatch(literal.ReplaceAllString(command, ""), -1) {
			if !set[use[1]] && !strings.Contains(command, use[1]+"=") {
				found = append(found, "$"+use[1]+" isn't set before it is used: "+command)
			}
		}
		for _, a := range assigned.FindAllStringSubmatch(command, -1) {
			set[a[1]] = true
		}
		if namespaced.MatchString(command) && !hasNamespace.MatchString(command) && !clusterWide.MatchString(command) {
			found = append(found, "no namespace: "+command)
		}
		if scaled.MatchString(command) {
			found = append(found, "it doesn't restore the former number of pods: "+command)
		}
	}
	return found
}

var (
	// unquoted matches a placeholder that people would have to replace in a command, such as POD or <pod>.
	unquoted = regexp.MustCompile(`(?:^| )(?:POD|NODE|NAMESPACE|RELEASE|STREAM|CONSUMER|SUBJECT|SEQUENCE|DEPLOYMENT|NAME|<[a-z-]+>)(?:$|[ :])`)

	used         = regexp.MustCompile(`\$\{?([A-Z_]+|[0-9!])`)
	literal      = regexp.MustCompile(`'[^']*'`)
	assigned     = regexp.MustCompile(`(?:^|[ ;])([A-Z_]+)=`)
	namespaced   = regexp.MustCompile(`(?:^|[ (])(?:kubectl|helm) `)
	hasNamespace = regexp.MustCompile(`(?:-n|--namespace)[ =]"\$[A-Z_]+"`)

	// scaled matches commands that set a fixed number of pods instead of the former number.
	scaled = regexp.MustCompile(`kubectl .* scale .*--replicas=[1-9]`)

	// clusterWide matches commands for nodes, which have no namespace.
	clusterWide = regexp.MustCompile(`kubectl (?:cordon|uncordon|drain|describe node|get nodes?) ?`)
)

// TestCommandsCanBePasted checks every block of commands. Bash must parse the block, which must set every variable that
// it uses. Commands have no placeholders, and name a namespace if they need one.
func TestCommandsCanBePasted(t *testing.T) {
	checked := 0
	for _, p := range read(t, append(incident, "alerts.md", "kubernetes.md", "streams.md", "exactly-once.md", "operations.md")...) {
		for _, b := range p.blocks() {
			if b.language != "sh" {
				continue
			}
			checked++
			for _, problem := range problems(b.text) {
				t.Errorf("%s: %s", p.name, problem)
			}
			file := filepath.Join(t.TempDir(), "block")
			if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "bash", "-n", file).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", p.name, err, out, b.text)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d blocks of commands, want more than 30", checked)
	}
}

var (
	selector = regexp.MustCompile(`-l "?([a-zA-Z0-9./=,$-]+)`)
	label    = regexp.MustCompile(`(?m)^(app\.kubernetes\.io/[a-z]+): (.*)$`)
)

// TestCommandsSelectByLabelsThatExist compares selectors with the labels that the chart gives to pods.
func TestCommandsSelectByLabelsThatExist(t *testing.T) {
	text, err := os.ReadFile(chart + "/templates/_names.tpl")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for _, found := range label.FindAllStringSubmatch(string(text), -1) {
		known[found[1]] = found[2]
	}
	known["app.kubernetes.io/name"] = "millrace" // the template yields the chart's name unless nameOverride is set
	seen := 0
	for _, p := range read(t, append(incident, "kubernetes.md")...) {
		for _, found := range selector.FindAllStringSubmatch(p.text, -1) {
			for _, part := range strings.Split(found[1], ",") {
				seen++
				key, value, _ := strings.Cut(part, "=")
				if strings.HasPrefix(value, "$") && known[key] != "" {
					continue // the value is a variable of the block, for example the release
				}
				if known[key] != value {
					t.Errorf("%s selects %s, but pods have %s: %q", p.name, part, key, known[key])
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d labels in selectors, want more than 10", seen)
	}
}

var inline = regexp.MustCompile("`((?:kubectl|helm) [^`]+)`")

// TestCommandsInSentencesHaveTheirNamespace checks commands outside blocks. It ignores plain subcommand names such as
// `helm rollback`.
func TestCommandsInSentencesHaveTheirNamespace(t *testing.T) {
	for _, p := range read(t, incident...) {
		for _, found := range inline.FindAllStringSubmatch(p.text, -1) {
			command := strings.Join(strings.Fields(found[1]), " ")
			if strings.Count(command, " ") > 1 && !hasNamespace.MatchString(command) && !clusterWide.MatchString(command) {
				t.Errorf("%s: no namespace: %s", p.name, command)
			}
		}
	}
}

// TestBlocksWithoutALanguageHaveNoCommands exists because the other checks read only blocks with a language.
func TestBlocksWithoutALanguageHaveNoCommands(t *testing.T) {
	for _, p := range read(t, incident...) {
		for _, b := range p.blocks() {
			if b.language == "" && regexp.MustCompile(`(?m)^(?:\$ )?(?:kubectl|helm|nats|worker|curl) `).MatchString(b.text) {
				t.Errorf("%s has commands in a block without a language: %s", p.name, b.text)
			}
		}
	}
}

// TestProblemsAreFound checks that the function problems detects mistakes.
func TestProblemsAreFound(t *testing.T) {
	for text, want := range map[string]string{
		"kubectl get pods\n": "no namespace",
		"NAMESPACE=a\nkubectl -n \"$NAMESPACE\" logs POD\n":                                 "in place of",
		"kubectl -n \"$NAMESPACE\" get pods\n":                                              "$NAMESPACE isn't set",
		"NAMESPACE=a\nhelm rollback x\n":                                                    "no namespace",
		"NAMESPACE=a\nkubectl -n \"$NAMESPACE\" describe node \"$N\"\n":                     "$N isn't set",
		"NAMESPACE=a\nX=$(kubectl get pods)\n":                                              "no namespace",
		"nats stream info <stream>\n":                                                       "in place of",
		"NAMESPACE=a\nkubectl -n \"$NAMESPACE\" get pods\n":                                 "",
		"NODE=a\nkubectl cordon \"$NODE\"\n":                                                "",
		"sh -c 'echo $HOME'\n":                                                              "",
		"NAMESPACE=a\nkubectl -n \"$NAMESPACE\" scale deployment/a --replicas=1\n":          "former number",
		"NAMESPACE=a\nkubectl -n \"$NAMESPACE\" scale deployment/a --replicas=0\n":          "",
		"NAMESPACE=a R=1\nkubectl -n \"$NAMESPACE\" scale deployment/a --replicas=\"$R\"\n": "",
		"STREAM=INGEST # config.stream\nnats stream info \"$STREAM\"\n":                     "",
	} {
		found := problems(text)
		if want == "" && len(found) > 0 || want != "" && !strings.Contains(strings.Join(found, "\n"), want) {
			t.Errorf("%q: %q, want %q", text, found, want)
		}
	}
}
