// Package history runs models over random histories. A model draws every choice from its history, so that a text can describe the history.
// Run shortens a failing history and prints its text. If MILLRACE_MODEL_HISTORY contains such a text, Run repeats that history.
//
// Only tests use the package. Start reading at Run. The file shrink.go makes failing histories shorter.
package history

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// History is one run of a model. It consists of a seed and the choices that the model draws. It is a rand.Source. Only
// one goroutine may use it at a time.
type History struct {
	Seed    uint64 // seed for decisions that don't depend on the order of the choices
	choices []uint16
	drawn   int       // number of choices that the model has drawn
	random  *rand.PCG // source of further choices; if nil, further choices are 0
}

// New returns the history that is generated from seed. It has no choices yet.
func New(seed uint64) *History { return &History{Seed: seed, random: rand.NewPCG(seed, 11)} }

// Uint64 draws a choice of 16 bits and returns it in the highest and in the lowest bits. rand.Rand therefore derives smaller numbers from
// smaller choices. The bits between are constant. They are not 0, because rand.Rand rejects 0 repeatedly for most bounds.
func (h *History) Uint64() uint64 {
	if h.drawn == len(h.choices) {
		h.choices = append(h.choices, h.further())
	}
	h.drawn++
	c := uint64(h.choices[h.drawn-1])
	return c<<48 | 0x8001_8001_0000 | c
}

func (h *History) further() uint16 {
	if h.random == nil {
		return 0
	}
	return uint16(h.random.Uint64())
}

// String returns the text of the history: the seed, and four hexadecimal digits for each drawn choice.
func (h *History) String() string {
	text := strconv.AppendUint(nil, h.Seed, 10)
	text = append(text, ':')
	for _, c := range h.choices[:h.drawn] {
		text = hex.AppendEncode(text, []byte{byte(c >> 8), byte(c)})
	}
	return string(text)
}

// Parse returns the history with the given text. Choices after the end of the text are 0.
func Parse(text string) (*History, error) {
	number, digits, ok := strings.Cut(strings.TrimSpace(text), ":")
	seed, err := strconv.ParseUint(number, 10, 64)
	bytes, err2 := hex.DecodeString(digits)
	if err := errors.Join(err, err2); !ok || err != nil || len(bytes)%2 != 0 {
		return nil, fmt.Errorf("a history is a seed, a colon, and four hexadecimal digits for each choice: %w", err)
	}
	h := &History{Seed: seed}
	for pair := range slices.Chunk(bytes, 2) {
		h.choices = append(h.choices, uint16(pair[0])<<8|uint16(pair[1]))
	}
	return h, nil
}

// Bounds limits the number of histories that Run runs.
type Bounds struct {
	Min        int      // minimum number of runs
	Max        int      // number of runs after which every event of MustHappen must have happened; 0 means Min
	Parallel   int      // number of concurrent runs, for models that mostly wait; 0 means 1
	MustHappen []string // events that must happen at least once for the test to be meaningful
}

// Step is the event that a model counts for each step of a run, if it has steps.
const Step = "step"

// These environment variables contain a history's text or file name, and the minimum duration or number of steps of a
// test with new histories.
const (
	variableHistory = "MILLRACE_MODEL_HISTORY"
	variableFor     = "MILLRACE_MODEL_FOR"
)

// Run runs a model with at least Min new histories, until every event of MustHappen has happened. The test fails if
// an event is missing after Max runs. The function run returns the number of occurrences of each event, and fails t if
// an invariant is broken. After a failure, Run logs the shortest failing history that it finds.
//
// With MILLRACE_MODEL_FOR, Run continues for at least that duration, such as 20s, or that number of steps, such as
// 10000000. With -short, as under the race detector, Run does about a tenth of the
// runs, requires no event and shortens no history. With MILLRACE_MODEL_HISTORY, Run does a single run with that history.
func Run(t *testing.T, b Bounds, run func(h *History) map[string]int) {
	t.Helper()
	if text := os.Getenv(variableHistory); text != "" {
		t.Log(run(named(t, text)))
		return
	}
	budget, steps := least(t)
	if testing.Short() {
		b.Min, b.MustHappen = 1+b.Min/10, nil
	}
	seed, runs, counts := uint64(time.Now().UnixNano()), 0, map[string]int{}
	for began := time.Now(); runs < b.Min || time.Since(began) < budget || counts[Step] < steps || runs < b.Max && b.missingEvents(counts) != nil; {
		batch := make([]*History, max(b.Parallel, 1))
		found := make([]map[string]int, len(batch))
		var running sync.WaitGroup
		for i := range batch {
			batch[i] = New(seed + uint64(runs))
			running.Go(func() { found[i] = run(batch[i]) })
			runs++
		}
		running.Wait()
		for _, events := range found {
			for what, n := range events {
				counts[what] += n
			}
		}
		if t.Failed() {
			t.Logf("%d runs, %d steps", runs, counts[Step])
			report(t, batch)
			return
		}
		if steps > 0 && counts[Step] == 0 {
			t.Fatalf("this model doesn't count its steps. Set %s to a duration", variableFor)
		}
	}
	t.Logf("%d runs, %d steps: %v", runs, counts[Step], counts)
	if events := b.missingEvents(counts); events != nil {
		t.Errorf("these events happened in none of %d runs: %q", runs, events)
	}
}

// least returns the minimum duration and the minimum number of steps of MILLRACE_MODEL_FOR. One of them is 0.
func least(t *testing.T) (budget time.Duration, steps int) {
	t.Helper()
	text := os.Getenv(variableFor)
	if text == "" {
		return 0, 0
	}
	if steps, err := strconv.Atoi(text); err == nil {
		return 0, steps
	}
	budget, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s is neither a number of steps nor a duration: %v", variableFor, err)
	}
	return budget, 0
}

// Replays reports whether Run replays a single history, because MILLRACE_MODEL_HISTORY is set. A model can then log a trace.
func Replays() bool { return os.Getenv(variableHistory) != "" }

// named returns the history with the given text. A text without a colon is the name of a file that contains the history's text.
func named(t *testing.T, text string) *History {
	t.Helper()
	if !strings.Contains(text, ":") {
		content, err := os.ReadFile(text)
		if err != nil {
			t.Fatalf("%s is neither a history nor a file with one: %v", variableHistory, err)
		}
		text = string(content)
	}
	h, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", variableHistory, err)
	}
	return h
}

func (b Bounds) missingEvents(counts map[string]int) (events []string) {
	for _, what := range b.MustHappen {
		if counts[what] == 0 {
			events = append(events, what)
		}
	}
	return events
}
