package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
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
		return a, p.gone
	}
	if a.Error != "" {
		return a, fmt.Errorf("the baseline program (%s) refused %q: %s", p.path, request, a.Error)
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

// answer is one JSON object from the program. `yardstick --help` explains the keys. An answer has only the figures that
// the request asks for.
type answer struct {
	Error   string  // reason why the program can't do the work
	Seconds float64 // seconds per batch
	Median  float64 // seconds

	In, Out float64 // bytes per second, as are BothIn and BothOut
	BothIn  float64 `json:"both_in"`
	BothOut float64 `json:"both_out"`

	Calls struct {
		Total struct{ Median float64 } `json:"total_seconds"`
	}
}

// baseline measures the work of a case in the baseline program, after each round of the case.
type baseline struct {
	// request is called just before the measurement, because the request may contain the case's number of repetitions.
	request func() string
	batch   func(answer) (seconds float64)
	unlike  bool // whether the baseline program does less work, which makes a ratio misleading

	seconds []float64 // seconds per batch, one value per round
	err     error     // reason why the baseline can't be measured, or nil
}

// secondsOf returns a baseline that sends the result of request, and reads the seconds per batch from the answer.
func secondsOf(request func() string) *baseline {
	return &baseline{request: request, batch: func(a answer) float64 { return a.Seconds }}
}

// measure measures one round on the device with the given ordinal. If the baseline program fails, measure stores the
// error and skips later rounds.
func (b *baseline) measure(p *program, device int) {
	if b.err != nil {
		return
	}
	a, err := p.ask(fmt.Sprintf("%s device=%d", b.request(), device))
	seconds := b.batch(a)
	if err == nil && !(seconds > 0 && seconds <= math.MaxFloat64) {
		err = fmt.Errorf("the answer of the baseline program to %q has no positive time: build it and the worker from one commit", b.request())
	}
	if b.err = err; err == nil {
		b.seconds = append(b.seconds, seconds)
	}
}

func (b *baseline) values() []float64 { return b.seconds }
