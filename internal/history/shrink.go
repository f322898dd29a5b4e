package history

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// shrinkFor is the maximum time for making a failing history shorter.
	shrinkFor = time.Minute

	// attemptFor is the maximum duration of one run of a shorter history. A run that takes longer does not count as a failure.
	attemptFor = 10 * time.Second
)

// report shortens a failing history for at most shrinkFor, but not with -short. The shorter history must fail in the same way.
// report logs the command that runs the shorter history. At least one of the histories in ran has failed.
func report(t *testing.T, ran []*History) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), shrinkFor)
	defer cancel()
	h, how, candidates := ran[0], "", ran
	if testing.Short() {
		candidates = nil
	}
	for _, candidate := range candidates {
		if how = failure(ctx, t, candidate); how != "" {
			h = candidate
			break
		}
	}
	if how == "" && !testing.Short() {
		t.Logf("no history fails when it runs alone: the failure depends on the order of goroutines or on other tests. The first of %d histories is", len(ran))
	}
	short := Shrink(h, func(h *History) bool { return how != "" && ctx.Err() == nil && failure(ctx, t, h) == how })
	text := short.String()
	if len(text) > longestLine {
		text = write(t, os.TempDir(), short)
	}
	t.Logf("%d of %d choices are left. Run the history with\n%s=%s go test -run '%s'", short.drawn, h.drawn, variableHistory, text, pattern(t.Name()))
}

// longestLine is the maximum length in bytes of a history's text for printing. A longer text is written to a file.
const longestLine = 4000

// write writes a history to a new file and returns its name.
func write(t *testing.T, folder string, h *History) string {
	t.Helper()
	f, err := os.CreateTemp(folder, "history-")
	if err == nil {
		_, err = f.WriteString(h.String())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// failure runs a history in a new process, so a panic, a deadlock or an endless loop ends only that process. It returns
// the first line of the failure without numbers. It returns an empty text if the history doesn't fail within attemptFor.
func failure(ctx context.Context, t *testing.T, h *History) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, attemptFor)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0], "-test.run="+pattern(t.Name()), "-test.count=1")
	command.Env = append(os.Environ(), variableHistory+"="+write(t, t.TempDir(), h))
	out, err := command.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return ""
	}
	return numbers.ReplaceAllString(string(failed.FindSubmatch(out)[1]), "")
}

var (
	// failed matches the output of a test that fails or panics. Its group is the line of the first error or panic.
	failed = regexp.MustCompile(`(?:--- FAIL: .*\n\s*|(?:^|\n)(?:panic|fatal error): |$)(.*)`)

	numbers = regexp.MustCompile(`[0-9]+`)
)

// pattern returns the argument of -run for one test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// Shrink returns a failing history with fewer or smaller choices than the failing history h. fails reports whether a history
// fails. It removes runs of choices, longer runs first. Then it makes each choice zero or half as large. It stops when every such
// change results in a history that doesn't fail.
func Shrink(h *History, fails func(*History) bool) *History {
	best := slices.Clone(h.choices[:h.drawn])
	try := func(choices []uint16) bool {
		if !fails(&History{Seed: h.Seed, choices: slices.Clone(choices), drawn: len(choices)}) {
			return false
		}
		best = choices
		return true
	}
	for changed := true; changed; {
		changed = false
		for n := max(len(best)/2, 1); n > 0; n /= 2 {
			for from := len(best) - n; from >= 0; from = min(from, len(best)) - n {
				changed = try(slices.Delete(slices.Clone(best), from, from+n)) || changed
			}
		}
		for i := range best {
			for _, smaller := range []uint16{0, best[i] / 2} {
				if smaller >= best[i] {
					break
				}
				other := slices.Clone(best)
				other[i] = smaller
				if try(other) {
					changed = true
					break
				}
			}
		}
	}
	return &History{Seed: h.Seed, choices: best, drawn: len(best)}
}
