package history

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// draws returns the first n numbers that a model draws.
func draws(h *History, n int) (numbers []int) {
	random := rand.New(h)
	for range n {
		numbers = append(numbers, random.IntN(1000), random.IntN(1024), random.Perm(5)[0], int(random.Float64()*1000))
	}
	return numbers
}

func TestAHistoryIsItsText(t *testing.T) {
	t.Parallel()
	h := New(7)
	want := draws(h, 100)
	again, err := Parse(h.String())
	if err != nil {
		t.Fatal(err)
	}
	if got := draws(again, 100); !slices.Equal(got, want) || again.String() != h.String() {
		t.Errorf("the history draws %v, want %v", got, want)
	}
	if slices.Equal(draws(New(8), 100), want) {
		t.Error("another seed draws the same numbers")
	}
	for _, text := range []string{"", "7", "x:0000", "7:000", "7:00000", "7:zzzz"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%q was accepted as a history", text)
		}
	}
}

// TestShrinkFindsTheShortestHistory uses a model that fails because of only two of hundreds of choices, and only if they are large enough.
func TestShrinkFindsTheShortestHistory(t *testing.T) {
	t.Parallel()
	fails := func(h *History) bool {
		first := slices.IndexFunc(h.choices, func(c uint16) bool { return c >= 1000 && c%2 == 0 })
		return first >= 0 && slices.ContainsFunc(h.choices[first+1:], func(c uint16) bool { return c >= 3000 })
	}
	h := New(3)
	draws(h, 100)
	if !fails(h) {
		t.Fatal("the history doesn't fail")
	}
	short := Shrink(h, fails)
	if !fails(short) || len(short.choices) != 2 || short.choices[0] >= 4000 || short.choices[1] >= 6000 {
		t.Errorf("the shortest history is %v", short)
	}
}

// TestRunContinuesForTheStepsThatAreAskedFor can't run in parallel, because it sets an environment variable.
func TestRunContinuesForTheStepsThatAreAskedFor(t *testing.T) {
	t.Setenv(variableFor, "1000")
	runs := 0
	Run(t, Bounds{Min: 1}, func(*History) map[string]int {
		runs++
		return map[string]int{Step: 7}
	})
	if runs != 143 {
		t.Errorf("%d runs of 7 steps, want 143", runs)
	}
}

// TestBrokenModel is a model that breaks if it draws 7 and later 9. It runs only for TestAFailingHistoryIsPrinted.
func TestBrokenModel(t *testing.T) {
	if os.Getenv("BROKEN_MODEL") == "" {
		t.Skip("SKIPPED: TestAFailingHistoryIsPrinted RUNS IT, because this model is made to fail")
	}
	Run(t, Bounds{Min: 1000}, func(h *History) map[string]int {
		random, seven := rand.New(h), false
		for range 100 {
			n := random.IntN(20)
			if seven = seven || n == 7; seven && n == 9 {
				panicOrFail(t)
				break
			}
		}
		return nil
	})
}

// panicOrFail fails in the first run. In the processes that try shorter histories it panics, because a panic must be
// detected as a failure too.
func panicOrFail(t *testing.T) {
	t.Helper()
	if os.Getenv(variableHistory) != "" {
		panic("broken")
	}
	t.Error("broken")
}

func TestAFailingHistoryIsPrinted(t *testing.T) {
	t.Parallel()
	broken := func(env ...string) (string, error) {
		command := exec.Command(os.Args[0], "-test.run=^TestBrokenModel$")
		command.Env = append(append(os.Environ(), "BROKEN_MODEL=1"), env...)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	out, err := broken()
	found := regexp.MustCompile(variableHistory + `=\d+:([0-9a-f]{8}) go test -run '\^TestBrokenModel\$'`).FindString(out)
	if err == nil || found == "" {
		t.Fatalf("the output contains no history of two choices: %v\n%s", err, out)
	}
	if out, err := broken(strings.Fields(found)[0]); err == nil || !strings.Contains(out, "panic: broken") {
		t.Errorf("the history that is printed doesn't fail: %v\n%s", err, out)
	}
	if out, err := broken(variableHistory + "=1:0000"); err != nil {
		t.Errorf("a correct history fails: %v\n%s", err, out)
	}
}
