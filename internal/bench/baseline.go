package bench

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// program is the baseline program, a subprocess that does the same work in plain CUDA C++ (kernels/bench). Each request
// is one line, such as "balanced bytes=1048576 rounds=900 slots=4 batches=1000". Each answer is one JSON object on a
// line, or {"error": "..."} if the program can't do the work. A nil program means that there is no baseline.
type program struct {
	path string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.Reader
	line *bufio.Scanner // reads out
	gone error          // why it no longer answers
}

// Bounds on the program.
const (
	maxAnswer     = 1 << 20          // bytes of one answer
	answerTimeout = 2 * time.Minute  // for one answer; the longest request takes seconds
	exitTimeout   = 10 * time.Second // to exit after its input has ended
)

// answer is one JSON object of the program.
type answer map[string]any

// number returns a positive number from the answer. The key "a.b" selects b in the object a.
func (a answer) number(key string) (float64, error) {
	var value any = map[string]any(a)
	for part := range strings.SplitSeq(key, ".") {
		object, _ := value.(map[string]any)
		value = object[part]
	}
	n, ok := value.(float64)
	if !ok || n <= 0 {
		return 0, fmt.Errorf("the answer of the baseline program has no positive number %q: build it and the worker from one commit", key)
	}
	return n, nil
}

// startProgram starts the program in Options.Yardstick, unless that option is empty.
func (s *Session) startProgram(ctx context.Context) error {
	if s.Yardstick == "" {
		return nil
	}
	p := &program{path: s.Yardstick, cmd: exec.CommandContext(ctx, s.Yardstick)}
	var err, outErr error
	p.in, err = p.cmd.StdinPipe()
	p.out, outErr = p.cmd.StdoutPipe()
	if err := errors.Join(err, outErr); err != nil {
		return fmt.Errorf("baseline program %s: %w", p.path, err)
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("baseline program: %w: build it with `make -C kernels yardstick`, or leave --yardstick out", err)
	}
	p.line = bufio.NewScanner(p.out)
	p.line.Buffer(nil, maxAnswer)
	s.program = p
	return nil
}

// ask sends one request and waits for its answer. After the program has failed to answer once, every request fails with
// the same error, because answers would no longer match their requests.
func (p *program) ask(request string) (answer, error) {
	if p.gone != nil {
		return nil, p.gone
	}
	text, err := p.exchange(request)
	if err != nil {
		p.gone = fmt.Errorf("the baseline program (%s) did not answer %q: %w", p.path, request, err)
		return nil, p.gone
	}
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, fmt.Errorf("the baseline program (%s) answered %q with %.200q, which is no JSON object: %w", p.path, request, text, err)
	}
	if problem, ok := a["error"]; ok {
		return nil, fmt.Errorf("the baseline program (%s) refused %q: %v", p.path, request, problem)
	}
	return a, nil
}

// exchange writes a line and reads one. It stops the program if no answer arrives within answerTimeout.
func (p *program) exchange(request string) (string, error) {
	if _, err := fmt.Fprintln(p.in, request); err != nil {
		return "", err
	}
	timer := p.endAfter(answerTimeout)
	if p.line.Scan() {
		timer.Stop()
		return p.line.Text(), nil
	}
	if !timer.Stop() {
		return "", fmt.Errorf("there was no answer for %v", answerTimeout)
	}
	return "", cmp.Or(p.line.Err(), errors.New("it has ended"))
}

// endAfter stops the program after d unless the caller stops the timer first.
func (p *program) endAfter(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() { _ = p.cmd.Process.Kill() })
}

// close closes the program's input and waits for its exit. It ignores a nonzero exit status: the program exits that way
// if it can't work, and the rows have reported that.
func (p *program) close() error {
	if p == nil {
		return nil
	}
	_ = p.in.Close() // may be closed already
	defer p.endAfter(exitTimeout).Stop()
	_, _ = io.Copy(io.Discard, p.out) // an unread answer would block its exit
	var status *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &status) {
		return fmt.Errorf("baseline program %s: %w", p.path, err)
	}
	return nil
}

// question is a request to the baseline program, made once per round. Several cases may share its answer.
type question struct {
	t       *target
	request func() string // called just before the request, because it may depend on the pace of the previous case
	answers []answer      // one per round
}

// ask returns a new question, or nil if there is no baseline program.
func (t *target) ask(request func() string) *question {
	t.compares = true
	if t.program == nil {
		return nil
	}
	return &question{t: t, request: request}
}

// seconds returns a case that takes its seconds per batch from the answer under key, or nil if there is no baseline
// program.
func (q *question) seconds(key string) *Case {
	return q.answer(func(a answer) (float64, error) { return a.number(key) })
}

// answer returns a case that computes its seconds per batch from the answer. If the baseline program fails, the
// comparison is omitted and the run continues.
func (q *question) answer(of func(answer) (float64, error)) *Case {
	if q == nil {
		return nil
	}
	return &Case{Measure: func(_ context.Context, c *Case, _ uint64) error {
		round := len(c.seconds)
		if round == len(q.answers) {
			request := fmt.Sprintf("%s device=%d", q.request(), q.t.info.Ordinal)
			a, err := q.t.program.ask(request)
			if err != nil {
				return errUnable{err}
			}
			q.answers = append(q.answers, a)
		}
		seconds, err := of(q.answers[round])
		if err != nil {
			return errUnable{err}
		}
		c.seconds = append(c.seconds, seconds)
		return nil
	}}
}

// compareBaseline adds the time of the baseline program and its ratio to ours.
func (c *Case) compareBaseline(s *Session) {
	switch {
	case c.baseline == nil:
	case !c.baseline.measured():
		s.Note("%s: not compared with the baseline program: %s", c.Row.Name, c.baseline.Row.Skipped)
	case c.measured():
		c.Add(figureBaseline, "s", c.baseline.seconds...)
		if c.Row.Group != groupCompletion { // in that group the baseline program does less: it copies nothing
			c.ratio(figureOverBaseline, "x", c.baseline.seconds, c.seconds)
		}
	}
}

// The keys of the program's answers. `yardstick --help` explains them.
const (
	yardSeconds = "seconds" // per batch
	yardCopyIn  = "in"      // bytes per second, like the other copies
	yardCopyOut = "out"
	yardBothIn  = "both_in"
	yardBothOut = "both_out"
	yardMedian  = "median"
	yardLaunch  = "calls.total_seconds.median"
)

// slowest returns how long n bytes take at the lowest of the rates under these keys.
func (a answer) slowest(n int, keys []string) (seconds float64, err error) {
	for _, key := range keys {
		rate, err := a.number(key)
		if err != nil {
			return 0, err
		}
		seconds = max(seconds, float64(n)/rate)
	}
	return seconds, nil
}
