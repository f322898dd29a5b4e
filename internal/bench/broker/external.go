package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// rowExternal is the name of the row of another program. It exists only if Options names the program.
const rowExternal = "frames-external"

// The variables that tell another program what to do: it creates a durable consumer on the stream, stores one result for each message,
// and then acknowledges the message.
const (
	envURL      = "MILLRACE_BENCH_URL"      // of the server
	envStream   = "MILLRACE_BENCH_STREAM"   // the stream with the inputs
	envSubjects = "MILLRACE_BENCH_SUBJECTS" // the subjects of all inputs, with a wildcard
	envResults  = "MILLRACE_BENCH_RESULTS"  // the subject for all results
)

// externalGrace is how long another program may take to end after its interrupt.
const externalGrace = 10 * time.Second

// external is another program, which runs in a separate process for a round. Its results are counted and not compared, because their
// form is unknown.
type external struct {
	command []string
	server  *server
	process *exec.Cmd     // nil before it has started
	ended   chan struct{} // closed when it has ended
	err     error         // why it ended, after that
}

// externalKind returns the kind that runs another program.
func externalKind(command []string) kind {
	return kind{name: rowExternal, shape: bare, foreign: true, make: func(func(time.Duration)) worker { return &external{command: command} }}
}

func (e *external) ready(_ context.Context, s *server, _ load) error {
	e.server = s
	return nil
}

func (e *external) run(ctx context.Context, l load) error {
	p := exec.Command(e.command[0], e.command[1:]...) // close ends it, when its acknowledgements have arrived
	p.Stderr = os.Stderr
	p.Env = append(os.Environ(), envURL+"="+e.server.address.URL, envStream+"="+e.server.in, envSubjects+"="+inPrefix+".>",
		envResults+"="+outPrefix+".external")
	if err := p.Start(); err != nil {
		return fmt.Errorf("start the program of --external: %w", err)
	}
	e.process, e.ended = p, make(chan struct{})
	go func() {
		e.err = p.Wait()
		close(e.ended)
	}()
	for {
		stored, err := e.server.stored(ctx)
		if err != nil || stored >= l.n {
			return err
		}
		select {
		case <-e.ended:
			return fmt.Errorf("the program of --external ended with %d of %d results: %w", stored, l.n, cmp.Or(e.err, errEnded))
		case <-time.After(pollFirst):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errEnded is why a program ended that reported success.
var errEnded = errors.New("exit status 0")

// close interrupts the program and waits for it. How it ends does not matter any more.
func (e *external) close() error {
	if e.process == nil {
		return nil
	}
	if err := e.process.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end the program of --external: %w", err)
	}
	defer time.AfterFunc(externalGrace, func() { _ = e.process.Process.Kill() }).Stop()
	<-e.ended
	return nil
}

// stored returns the number of messages in the result stream.
func (s *server) stored(ctx context.Context) (int, error) {
	stream, err := s.js.Stream(ctx, s.out)
	if err != nil {
		return 0, fmt.Errorf("count the results: %w", err)
	}
	return int(stream.CachedInfo().State.Msgs), nil
}

// counted returns an error if the result stream doesn't have one message for each of n inputs.
func (s *server) counted(ctx context.Context, n int) error {
	stored, err := s.stored(ctx)
	if err == nil && stored != n {
		err = fmt.Errorf("WRONG RESULT: the result stream holds %d messages for %d inputs", stored, n)
	}
	return err
}

// states returns the states of all consumers of the input stream. It returns none while a server of a cluster doesn't report its own.
func (s *server) states(ctx context.Context) ([]*jetstream.ConsumerInfo, error) {
	stream, err := s.js.Stream(ctx, s.in)
	if err != nil {
		return nil, err
	}
	var all []*jetstream.ConsumerInfo
	list := stream.ListConsumers(ctx)
	for c := range list.Info() {
		all = append(all, c)
	}
	if len(all) < stream.CachedInfo().State.Consumers {
		return nil, list.Err()
	}
	return all, list.Err()
}
