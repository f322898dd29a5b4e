// Package history runs models over random histories. A model draws every choice from its history, so that a history which breaks it is a
// text: Run prints it, makes it as short as it can, and runs it again if MILLRACE_MODEL_HISTORY has it.
//
// Only tests use the package. Start reading at Run; shrink.go makes failing histories shorter.
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

// History is one run of a model: a seed, and the choices that the model draws. It is a rand.Source for one goroutine at a time.
type History struct {
	Seed    uint64 // for what doesn't depend on the order of the choices
	choices []uint16
	drawn   int       // number of choices that the model has drawn
	random  *rand.PCG // source of further choices; nil: they are 0
}

// New returns the history of a seed, without choices.
func New(seed uint64) *History { return &History{Seed: seed, random: rand.NewPCG(seed, 11)} }

// Uint64 draws a choice: a number of 16 bits, in the highest and in the lowest bits, of which rand.Rand makes smaller numbers if it is
// smaller. The bits between are constant. They are not 0, because rand.Rand rejects 0 again and again for most bounds.
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

// String returns the text of what has been drawn: the seed, and four hexadecimal digits for each choice.
func (h *History) String() string {
	text := strconv.AppendUint(nil, h.Seed, 10)
	text = append(text, ':')
	for _, c := range h.choices[:h.drawn] {
		text = hex.AppendEncode(text, []byte{byte(c >> 8), byte(c)})
	}
	return string(text)
}

// Parse returns the history with that text. Choices behind its end are 0.
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

// Bounds says how many histories Run runs.
type Bounds struct {
	Least      int      // number of runs at least
	Most       int      // number of runs after which every event of MustHappen must have happened; 0: Least
	Parallel   int      // number of runs at the same time, for models that wait for most of their time; 0: 1
	MustHappen []string // events without which the model proves nothing
}

// The variables of the environment with the text of a history or a file with it, and with how long to run new ones.
const (
	variableHistory = "MILLRACE_MODEL_HISTORY"
	variableFor     = "MILLRACE_MODEL_FOR"
)

// Run runs a model with new histories: Least of them, and more until every event of MustHappen has happened. The test fails if an event is
// missing after Most runs. A run returns how often each event happened, and fails t if an invariant is broken. Then Run logs the shortest
// history that it finds which fails too.
//
// With MILLRACE_MODEL_FOR, Run goes on for at least that duration. With -short, as under the race detector, there are a tenth of the runs,
// and no event must happen. With MILLRACE_MODEL_HISTORY there is one run, with the history of that text or in the file of that name.
func Run(t *testing.T, b Bounds, run func(h *History) map[string]int) {
	t.Helper()
	if text := os.Getenv(variableHistory); text != "" {
		t.Log(run(named(t, text)))
		return
	}
	var budget time.Duration
	if text := os.Getenv(variableFor); text != "" {
		var err error
		if budget, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Short() {
		b.Least, b.MustHappen = 1+b.Least/10, nil
	}
	seed, runs, counts := uint64(time.Now().UnixNano()), 0, map[string]int{}
	for began := time.Now(); runs < b.Least || time.Since(began) < budget || runs < b.Most && b.missing(counts) != nil; {
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
			report(t, batch)
			return
		}
	}
	t.Logf("%d runs: %v", runs, counts)
	if events := b.missing(counts); events != nil {
		t.Errorf("in none of %d runs: %q", runs, events)
	}
}

// Replays reports whether MILLRACE_MODEL_HISTORY has a history, so that a model prints more.
func Replays() bool { return os.Getenv(variableHistory) != "" }

// named returns the history with that text, or the one in the file with that name.
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

// missing returns the events that have not happened.
func (b Bounds) missing(counts map[string]int) (events []string) {
	for _, what := range b.MustHappen {
		if counts[what] == 0 {
			events = append(events, what)
		}
	}
	return events
}
