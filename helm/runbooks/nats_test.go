package runbooks

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// nats is a command line of the nats program on a page.
type nats struct {
	page string
	line string
	last bool // whether it is the last line of its block
}

var (
	natsLine    = regexp.MustCompile(`(?:^|[;|(] *|\$ |do )(nats [a-z][^;|]*)`)
	natsInline  = regexp.MustCompile("`(nats [a-z][^`]*)`")
	word        = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	shellValue  = regexp.MustCompile(`\$\{?[A-Za-z_]+\}?`)
	askingWords = regexp.MustCompile(`^nats (?:stream|consumer) (?:edit|rm|purge|reset)\b`)
)

// natsCommands returns the nats commands in blocks and sentences. It skips blocks in a programming language.
func natsCommands(p page) (list []nats) {
	for _, b := range p.blocks() {
		if !slices.Contains([]string{"", "sh", "bash", "console"}, b.language) {
			continue
		}
		lines := strings.Split(strings.TrimSpace(b.text), "\n")
		for i, line := range lines {
			line, _, _ = strings.Cut(line, " # ")
			for _, found := range natsLine.FindAllStringSubmatch(strings.TrimSpace(line), -1) {
				list = append(list, nats{p.name, strings.TrimSpace(found[1]), i == len(lines)-1})
			}
		}
	}
	for _, found := range natsInline.FindAllStringSubmatch(fence.ReplaceAllString(p.text, ""), -1) {
		list = append(list, nats{p.name, strings.Join(strings.Fields(found[1]), " "), true})
	}
	return list
}

// words splits a command as a shell does, and drops its first word. Variables have the value 1.
func (n nats) words() (list []string) {
	for _, found := range word.FindAllString(n.line, -1)[1:] {
		if !strings.HasPrefix(found, "'") {
			found = shellValue.ReplaceAllString(found, "1")
		}
		list = append(list, strings.NewReplacer("'", "", `"`, "").Replace(found))
	}
	return list
}

// refusedByNATS returns the parse error of nats for each command, or "". It doesn't run the commands.
func refusedByNATS(t *testing.T, commands []nats) []string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "natscli")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".")
	build.Dir = "../natscli"
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	var lines strings.Builder
	for _, c := range commands {
		if err := json.NewEncoder(&lines).Encode(c.words()); err != nil {
			t.Fatal(err)
		}
	}
	check := exec.CommandContext(t.Context(), binary)
	check.Stdin = strings.NewReader(lines.String())
	check.Env = []string{"HOME=" + t.TempDir()}
	out, err := check.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// TestNATSCommandsAreTaken parses each nats command line on the pages with nats itself.
func TestNATSCommandsAreTaken(t *testing.T) {
	var commands []nats
	for _, p := range read(t, "*.md", "*/*.md", "../README.md", "../helm/millrace/README.md") {
		commands = append(commands, natsCommands(p)...)
	}
	if len(commands) < 25 {
		t.Errorf("only %d commands, want more than 25", len(commands))
	}
	answers := refusedByNATS(t, commands)
	if len(answers) != len(commands) {
		t.Fatalf("%d answers to %d commands", len(answers), len(commands))
	}
	for i, c := range commands {
		if answers[i] != "" {
			t.Errorf("%s: %s: %s", c.page, c.line, answers[i])
		}
		if !c.last && askingWords.MatchString(c.line) && !regexp.MustCompile(` (?:--force|-f)\b`).MatchString(c.line) {
			t.Errorf("%s: %s: the command asks a question, and would read the next line of the block as the answer: add --force", c.page, c.line)
		}
	}
}

// TestNATSRefusesMistakes checks that refusedByNATS detects mistakes.
func TestNATSRefusesMistakes(t *testing.T) {
	lines := []string{
		"nats stream inf INGEST", "nats stream info INGEST --nope", "nats consumer edit A B --max-pending many", "nats stream add A --retention nothing", "nats stream",
		`nats consumer reset "$STREAM" "$CONSUMER" --force`, "nats stream get A --last-for 'a.>'", "nats --server nats://a:4222 stream info A", "nats pub a 'some text'",
	}
	var commands []nats
	for _, line := range lines {
		commands = append(commands, nats{line: line})
	}
	for i, answer := range refusedByNATS(t, commands) {
		if want := i < 5; (answer != "") != want {
			t.Errorf("%s: %q, want it refused: %v", lines[i], answer, want)
		}
	}
}
