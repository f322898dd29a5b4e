package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"millrace/internal/config"
)

// everyCommand returns the command and all of its visible subcommands.
func everyCommand(of *cobra.Command) (all []*cobra.Command) {
	all = append(all, of)
	for _, c := range of.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, everyCommand(c)...)
		}
	}
	return all
}

func TestEveryCommandHasHelpThatFitsTheTerminal(t *testing.T) {
	t.Parallel()
	root, _ := newRoot()
	all := everyCommand(root)
	if len(all) < 15 {
		t.Fatalf("only %d commands", len(all))
	}
	for _, c := range all {
		if c.Short == "" || c.Long == "" {
			t.Errorf("%s has no description", c.CommandPath())
		}
		for _, width := range []int{72, 120} {
			text := help(c, width)
			if !strings.Contains(text, "Usage: "+c.CommandPath()) || !strings.Contains(text, "-h, --help") {
				t.Errorf("the help of %s lacks its usage:\n%s", c.CommandPath(), text)
			}
			for line := range strings.Lines(text) {
				if n := len([]rune(strings.TrimRight(line, "\n"))); n > width && !strings.HasPrefix(line, "\t") {
					t.Errorf("%s, %d columns: a line has %d: %q", c.CommandPath(), width, n, line)
				}
			}
		}
	}
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"chek", `there is no command "chek": did you mean check?`},
		{"operator buld", `operator: there is no command "buld": did you mean build?`},
		{"completion tcsh", `completion: there is no command "tcsh"`},
		{"completion", "completion: name one of its commands"},
		{"version now", `version takes flags only, not "now": see worker version -h`},
		{"run -x", "run: unknown shorthand flag: 'x' in -x: see worker run -h"},
		{"plan --batches", "plan: flag needs an argument: --batches: see worker plan -h"},
		{"plan --batches many", `worker: plan: --batches is "many": give a whole number: see worker plan -h`},
		{"man", "man: give one folder, not 0"},
		{"--progress=maybe", `worker: --progress is "maybe": give true or false: see worker -h`},
	} {
		r := call(t, nil, strings.Fields(c.args)...)
		if r.want(t, exitUsage, c.want); strings.Count(r.errors, "worker:") > 1 {
			t.Errorf("worker %s names itself twice: %s", c.args, r.errors)
		}
	}
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	want := call(t, nil, "version")
	if got := call(t, nil, "--version"); got.code != exitDone || got.out != want.out {
		t.Errorf("worker --version ends with %d and prints\n%s\nwant\n%s", got.code, got.out, want.out)
	}
}

func TestShellsComplete(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"d":                         "demo\t",
		"bench ":                    "schedules",
		"demo --framing ":           "newline_delimited",
		"operator t":                "test\t",
		"operator test --":          "--sanitize\t",
		"operator test f --device ": "cuda",
		"check --":                  "--json\t",
	} {
		r := call(t, nil, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if r.code != exitDone || !strings.Contains("\n"+r.out, "\n"+want) || strings.Contains(r.out, "--separate") {
			t.Errorf("worker %s: status %d, completions\n%s\nwant %s", args, r.code, r.out, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		call(t, nil, "completion", shell).want(t, exitDone, "worker")
	}
}

func TestManPages(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "man1")
	call(t, []string{"SOURCE_DATE_EPOCH=1700000000"}, "man", folder).want(t, exitDone, "man "+filepath.Join(folder, "worker.1"))
	root, _ := newRoot()
	var want []string
	for _, c := range everyCommand(root) {
		if c.Name() != "help" {
			want = append(want, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		if f.Name() != "worker-help.1" {
			got = append(got, f.Name())
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the pages are %q, want %q", got, want)
	}
	page, err := os.ReadFile(filepath.Join(folder, "worker.1"))
	if err != nil || !strings.Contains(string(page), "Nov 2023") || !strings.Contains(string(page), "70 device lost") {
		t.Errorf("worker.1 lacks its date or the exit status (%v):\n%s", err, page)
	}
}

func TestCheckInJSON(t *testing.T) {
	t.Parallel()
	s := serve(t)
	r := call(t, []string{"MILLRACE_NATS_URL=" + s.URL()}, "check", "--json")
	var got struct {
		Findings         []struct{ Level, What, Found, Advice string }
		Errors, Warnings int
	}
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitFailed {
		t.Fatalf("status %d, %v:\n%s", r.code, err, r.out)
	}
	levels := map[string]int{}
	for _, f := range got.Findings {
		levels[f.Level]++
		if f.What == "" || f.Found == "" || (f.Advice == "") != (f.Level == "ok") {
			t.Errorf("a finding is %+v", f)
		}
	}
	if levels["error"] == 0 || levels["error"] != got.Errors || levels["warning"] != got.Warnings || levels["ok"] == 0 {
		t.Errorf("%d errors and %d warnings, but the findings have %v", got.Errors, got.Warnings, levels)
	}
	call(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true"}, "check", "--json").want(t, exitDone, `"errors": 0`)
	call(t, []string{"MILLRACE_LANES=0"}, "check", "--json").want(t, exitFailed, `"what": "MILLRACE_LANES"`)
}

func TestCheckWarnsOfTakenPorts(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the listener accepted no connection
	taken, free := l.Addr().String(), freeAddr()
	s := serve(t)
	call(t, []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_HTTP_ADDR=" + taken, "MILLRACE_DEBUG_ADDR=" + free}, "check").
		want(t, exitDone, "warning  MILLRACE_HTTP_ADDR: listen tcp "+taken+": bind: address already in use", "set another port in MILLRACE_HTTP_ADDR",
			"ok       MILLRACE_DEBUG_ADDR: the worker can listen on "+free)
}

func TestConfigWraps(t *testing.T) {
	t.Setenv("MILLRACE_LANES", "7")
	t.Setenv("MILLRACE_STREAM", "A\x1b[31mB")
	cfg, err := config.Load(nil)
	if err == nil {
		t.Error("a stream's name may have control characters")
	}
	text := wrapped(cfg.Variables(), 60)
	for _, want := range []string{"MILLRACE_LANES=7  (set; default: 4)\n    the number of lanes per device: streams in flight\n", "MILLRACE_LINGER=2ms  (default)\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); strings.HasPrefix(line, " ") && n > 60 {
			t.Errorf("a line has %d columns: %q", n, line)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Error("a value can change the colours of the terminal")
	}
}
