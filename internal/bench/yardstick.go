package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// yardstick is the program that does the same work in plain CUDA C++ (kernels/bench), as a subprocess: it reads one
// request a line, "balanced bytes=1048576 rounds=900 slots=4 batches=1000", and answers each with one JSON object a
// line, {"error": "..."} where it cannot. A nil yardstick is none.
type yardstick struct {
	path  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan line // closed when the program has closed its output
	gone  error     // why it answers no more
}

// line is one line that the program wrote, or why there is none.
type line struct {
	text string
	err  error
}

// Bounds on the yardstick.
const (
	maxAnswer      = 1 << 20          // bytes of one answer
	answerPatience = 2 * time.Minute  // for one answer: the longest request takes seconds
	exitPatience   = 10 * time.Second // to end once its input has
)

// answer is one JSON object of the yardstick.
type answer map[string]any

// number is a positive number of the answer. A key "a.b" is that of b in the object a.
func (a answer) number(key string) (float64, error) {
	var value any = map[string]any(a)
	for part := range strings.SplitSeq(key, ".") {
		object, _ := value.(map[string]any)
		value = object[part]
	}
	n, ok := value.(float64)
	if !ok || n <= 0 {
		return 0, fmt.Errorf("the yardstick's answer has no positive number %q: build it and the worker from one commit", key)
	}
	return n, nil
}

// startYardstick starts the program that Options.Yardstick names, if it names one.
func (s *session) startYardstick(ctx context.Context) error {
	if s.Yardstick == "" {
		return nil
	}
	y := &yardstick{path: s.Yardstick, cmd: exec.CommandContext(ctx, s.Yardstick), lines: make(chan line, 1)}
	stdin, err := y.cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("yardstick %s: %w", y.path, err)
	}
	stdout, err := y.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("yardstick %s: %w", y.path, err)
	}
	if err := y.cmd.Start(); err != nil {
		return fmt.Errorf("yardstick: %w: build it with `make -C kernels yardstick`, or leave --yardstick out", err)
	}
	y.in = stdin
	go y.read(stdout)
	s.yardstick = y
	return nil
}

// read passes lines on until the program closes its output or writes a line that is too long.
func (y *yardstick) read(stdout io.Reader) {
	defer close(y.lines)
	scanner := bufio.NewScanner(stdout)
	scanner.Buffer(nil, maxAnswer)
	for scanner.Scan() {
		y.lines <- line{text: scanner.Text()}
	}
	if err := scanner.Err(); err != nil {
		y.lines <- line{err: err}
	}
}

// ask sends one request and waits for its answer. Once the program has failed to answer, every later request fails
// with the same error: answers would no longer belong to their requests.
func (y *yardstick) ask(ctx context.Context, request string) (answer, error) {
	if y.gone != nil {
		return nil, y.gone
	}
	text, err := y.exchange(ctx, request)
	if err != nil {
		y.gone = fmt.Errorf("the yardstick (%s) did not answer %q: %w", y.path, request, err)
		return nil, y.gone
	}
	var a answer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, fmt.Errorf("the yardstick (%s) answered %q with %.200q, which is no JSON object: %w", y.path, request, text, err)
	}
	if problem, ok := a["error"]; ok {
		return nil, fmt.Errorf("the yardstick (%s) refused %q: %v", y.path, request, problem)
	}
	return a, nil
}

func (y *yardstick) exchange(ctx context.Context, request string) (string, error) {
	if _, err := fmt.Fprintln(y.in, request); err != nil {
		return "", err
	}
	timer := time.NewTimer(answerPatience)
	defer timer.Stop()
	select {
	case l, open := <-y.lines:
		if !open {
			return "", errors.New("it has ended")
		}
		return l.text, l.err
	case <-timer.C:
		return "", fmt.Errorf("nothing came for %v", answerPatience)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// close ends the program by closing its input. An exit status other than 0 is its way to say that it never could
// work, and the rows have said so.
func (y *yardstick) close() error {
	if y == nil {
		return nil
	}
	_ = y.in.Close() // it may have ended already
	timer := time.AfterFunc(exitPatience, func() { _ = y.cmd.Process.Kill() })
	defer timer.Stop()
	for range y.lines { // so that it is not kept from ending by an answer that nobody reads
	}
	var status *exec.ExitError
	if err := y.cmd.Wait(); err != nil && !errors.As(err, &status) {
		return fmt.Errorf("yardstick %s: %w", y.path, err)
	}
	return nil
}

// question is a request that several contenders want the answer to, asked once a round.
type question struct {
	t       *target
	request func() string // made when it is asked: it may depend on how the contender before it was paced
	answers []answer      // one a round
}

// ask makes a question; nil where there is no yardstick.
func (t *target) ask(request func() string) *question {
	t.asked = true
	if t.yardstick == nil {
		return nil
	}
	return &question{t: t, request: request}
}

// seconds is a contender whose seconds a batch stand in the answer under key; nil where there is no yardstick.
func (q *question) seconds(key string) *contender {
	return q.answer(func(a answer) (float64, error) { return a.number(key) })
}

// answer is a contender whose seconds a batch of computes from the answer. What goes wrong with the yardstick
// leaves the comparison out and does not end the run.
func (q *question) answer(of func(answer) (float64, error)) *contender {
	if q == nil {
		return nil
	}
	return &contender{measure: func(ctx context.Context, c *contender, _ uint64) error {
		round := len(c.seconds)
		if round == len(q.answers) {
			request := fmt.Sprintf("%s device=%d", q.request(), q.t.info.Ordinal)
			a, err := q.t.yardstick.ask(ctx, request)
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

// What the yardstick calls things. Its own --help has the meanings.
const (
	yardSeconds    = "seconds" // a batch
	yardCopyIn     = "in"      // bytes a second, as are the other copies
	yardCopyOut    = "out"
	yardBothIn     = "both_in"
	yardBothOut    = "both_out"
	yardPageableIn = "pageable_in"
	yardMedian     = "median"
	yardLaunch     = "calls.total_seconds.median"
)

// copySeconds is the time of one copy of n bytes by the yardstick's rates; both ways at once, of the slower way.
func copySeconds(a answer, w way, n int) (float64, error) {
	keys := map[string][]string{
		pinnedIn.name: {yardCopyIn}, pinnedOut.name: {yardCopyOut},
		pinnedBoth.name: {yardBothIn, yardBothOut}, pageableIn.name: {yardPageableIn},
	}[w.name]
	slowest := 0.0
	for _, key := range keys {
		rate, err := a.number(key)
		if err != nil {
			return 0, err
		}
		slowest = max(slowest, float64(n)/rate)
	}
	return slowest, nil
}

// request writes a request with its keys.
func request(name string, keys ...any) func() string {
	return func() string {
		var b strings.Builder
		b.WriteString(name)
		for i := 0; i+1 < len(keys); i += 2 {
			value := keys[i+1]
			if late, ok := value.(func() int); ok {
				value = late()
			}
			fmt.Fprintf(&b, " %v=%v", keys[i], value)
		}
		return b.String()
	}
}
