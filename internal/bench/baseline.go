package bench

import (
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

// program is the baseline program, a subprocess that does the same work as the cases in plain CUDA C++ (kernels/bench).
// A request is one line, such as "balanced bytes=1048576 rounds=900 slots=4 batches=1000". An answer is one line with a
// JSON object, which is {"error": "..."} if the program can't do the work.
type program struct {
	path    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
	answers *json.Decoder // reads out
	gone    error         // reason why the program no longer answers, or nil

	round map[string]answer // answers of this round by request; several cases may send the same request
}

const (
	answerTimeout = 2 * time.Minute  // maximum time for one answer; the longest request takes seconds
	exitTimeout   = 10 * time.Second // maximum time for the exit after the end of the input
)

// startProgram starts the program. If path is empty, there is no baseline and startProgram returns nil.
func startProgram(ctx context.Context, path string) (*program, error) {
	if path == "" {
		return nil, nil
	}
	p := &program{path: path, cmd: exec.CommandContext(ctx, path)}
	var inErr, outErr error
	p.in, inErr = p.cmd.StdinPipe()
	p.out, outErr = p.cmd.StdoutPipe()
	if err := cmp.Or(inErr, outErr); err != nil {
		return nil, fmt.Errorf("baseline program %s: %w", path, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("baseline program: %w: build it with `make -C kernels yardstick`, or leave --yardstick out", err)
	}
	p.answers, p.round = json.NewDecoder(p.out), map[string]answer{}
	return p, nil
}

// ask sends a request and returns its answer. It sends equal requests only once in a round. After a request without an
// answer, every request fails with the same error, because answers would no longer match their requests.
func (p *program) ask(request string) (a answer, err error) {
	if a, known := p.round[request]; known || p.gone != nil {
		return a, p.gone
	}
	defer p.endAfter(answerTimeout).Stop()
	_, err = fmt.Fprintln(p.in, request)
	if err == nil {
		err = p.answers.Decode(&a)
	}
	if err != nil {
		p.gone = fmt.Errorf("the baseline program (%s) did not answer %q with a JSON object within %v: %w", p.path, request, answerTimeout, err)
		return nil, p.gone
	}
	if problem, ok := a["error"]; ok {
		return nil, fmt.Errorf("the baseline program (%s) refused %q: %v", p.path, request, problem)
	}
	p.round[request] = a
	return a, nil
}

// endAfter kills the program after d unless the caller stops the timer first.
func (p *program) endAfter(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() { _ = p.cmd.Process.Kill() })
}

// close closes the program's input and waits until the program exits. It ignores a nonzero exit status, because the
// rows have already reported the cause.
func (p *program) close() error {
	if p == nil {
		return nil
	}
	_ = p.in.Close() // may be closed already
	defer p.endAfter(exitTimeout).Stop()
	_, _ = io.Copy(io.Discard, p.out) // an unread answer would block the exit
	var status *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &status) {
		return fmt.Errorf("baseline program %s: %w", p.path, err)
	}
	return nil
}

// answer is one JSON object from the program.
type answer map[string]any

// These are the keys of the program's answers. `yardstick --help` explains them.
const (
	yardSeconds = "seconds" // seconds per batch
	yardCopyIn  = "in"      // bytes per second, like the next three
	yardCopyOut = "out"
	yardBothIn  = "both_in"
	yardBothOut = "both_out"
	yardMedian  = "median"
	yardLaunch  = "calls.total_seconds.median"
)

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

// slowest returns the time for n bytes at the lowest of the named rates. keys are the names of rates in bytes per
// second.
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

// baseline measures the work of a case in the baseline program, after each round of the case.
type baseline struct {
	// request is called just before the measurement, because the request may contain the case's number of repetitions.
	request func() string
	batch   func(answer) (seconds float64, err error)
	unlike  bool // whether the baseline program does less work, which makes a ratio misleading

	seconds []float64 // seconds per batch, one value per round
	err     error     // reason why the baseline can't be measured, or nil
}

// baselineOf returns a baseline that sends the result of request, and reads the seconds per batch from the given key of
// the answer.
func baselineOf(key string, request func() string) *baseline {
	return &baseline{request: request, batch: func(a answer) (float64, error) { return a.number(key) }}
}

// measure measures one round on the device with the given ordinal. If the baseline program fails, measure stores the
// error and skips later rounds.
func (b *baseline) measure(p *program, device int) {
	if b.err != nil {
		return
	}
	a, err := p.ask(fmt.Sprintf("%s device=%d", b.request(), device))
	var seconds float64
	if err == nil {
		seconds, err = b.batch(a)
	}
	if b.err = err; err == nil {
		b.seconds = append(b.seconds, seconds)
	}
}

func (b *baseline) values() []float64 { return b.seconds }
