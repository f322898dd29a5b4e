package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// peer is a program that does the job.
type peer struct {
	name        string
	stream      string // input stream of the peer
	provisions  bool   // whether the peer creates the result stream
	command     []string
	environment []string
}

const goWorkerName = "go-worker"

// peersOf returns the peers of a load. The first is Millrace with shared delivery.
func peersOf(o options, l load, url string) []peer {
	framing, minimum := "none", strconv.Itoa(l.minimum())
	if l.records > 1 {
		framing = "newline_delimited"
	}
	millrace := func(delivery, stream string) peer {
		return peer{name: "Millrace, " + delivery, stream: stream, provisions: true, command: []string{o.worker}, environment: []string{
			"MILLRACE_NATS_URL=" + url, "MILLRACE_PROVISION=true", "MILLRACE_STREAM=" + stream, "MILLRACE_SUBJECTS=" + stream + ".>",
			"MILLRACE_DELIVERY=" + delivery, "MILLRACE_RESULT_STREAM=" + resultStream, "MILLRACE_HTTP_ADDR=", "MILLRACE_FRAMING=" + framing,
			"MILLRACE_FIELD=text", "MILLRACE_OPERATORS=crc32c", "MILLRACE_FILTER=record.bytes >= " + minimum,
			"MILLRACE_RESULT_FORMAT=annotated", "MILLRACE_ANNOTATE_AS=check",
		}}
	}
	environment := []string{
		"NATS_URL=" + url, "STREAM=" + plainStream, "MINIMUM=" + minimum,
		// Connect's client drops messages beyond 64 MiB, and the server delivers them again after 30 seconds.
		"MAX_ACK_PENDING=" + strconv.Itoa(min(8192, (48<<20)/(l.records*l.size))),
	}
	peers := []peer{
		millrace("shared", plainStream),
		millrace("exclusive", partitionedStream),
		{name: goWorkerName, stream: plainStream, command: append(os.Args[:len(os.Args):len(os.Args)], goWorkerName), environment: environment},
	}
	for config := range strings.SplitSeq(o.config, ",") {
		if o.connect != "" {
			peers = append(peers, peer{name: "Redpanda Connect, " + filepath.Base(config), stream: plainStream, command: []string{o.connect, "run", config}, environment: environment})
		}
	}
	return peers
}

// figure is the result of one round.
type figure struct {
	seconds float64 // time from before the first delivery until everything is acknowledged
	cpu     float64 // processor seconds of the peer in that time
}

const (
	roundLimit = 5 * time.Minute
	stopLimit  = 40 * time.Second
)

// round runs a peer once and checks its results.
func (s *server) round(ctx context.Context, p peer, l load) (f figure, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roundLimit, fmt.Errorf("the round takes longer than %v", roundLimit))
	defer cancel()
	if err := s.reset(ctx, p); err != nil {
		return f, err
	}
	var output bytes.Buffer
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), p.environment...), &output, &output
	if err := cmd.Start(); err != nil {
		return f, err
	}
	running, ended := context.WithCancelCause(ctx)
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		ended(fmt.Errorf("the peer ended early: %v", cmd.ProcessState))
		close(exited)
	}()
	f, err = s.timed(running, p.stream, cmd.Process.Pid)
	if running.Err() != nil {
		err = context.Cause(running)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	defer time.AfterFunc(stopLimit, func() { _ = cmd.Process.Kill() }).Stop()
	<-exited
	if err == nil {
		err = s.verify(ctx, l)
	}
	if err != nil {
		text := output.String()
		err = fmt.Errorf("%w; its output ends with:\n%s", err, text[max(len(text)-2000, 0):])
	}
	return f, err
}

// timed measures from the last moment without a delivery until the server has every acknowledgement.
func (s *server) timed(ctx context.Context, stream string, pid int) (figure, error) {
	begin, beginCPU := time.Now(), 0.0
	for ; ; time.Sleep(time.Millisecond) {
		now, cpu := time.Now(), cpuSeconds(pid)
		delivered, done, err := s.progress(ctx, stream)
		switch {
		case err != nil:
			return figure{}, err
		case done:
			return figure{time.Since(begin).Seconds(), cpuSeconds(pid) - beginCPU}, nil
		case !delivered:
			begin, beginCPU = now, cpu
		}
	}
}

// progress reports whether anything was delivered from a stream, and whether everything was acknowledged.
func (s *server) progress(ctx context.Context, stream string) (delivered, done bool, err error) {
	in, err := s.js.Stream(ctx, stream)
	if err != nil {
		return false, false, err
	}
	done = true
	consumers := in.ListConsumers(ctx)
	for c := range consumers.Info() {
		delivered = delivered || c.Delivered.Consumer > 0
		done = done && c.NumPending == 0 && c.NumAckPending == 0
	}
	return delivered, delivered && done, consumers.Err()
}

// cpuSeconds returns the processor time that a process has used, or 0 after its end.
func cpuSeconds(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, afterName, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(afterName)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / 100 // Linux counts hundredths of a second
}

// reset removes the consumers and the results of the previous round.
func (s *server) reset(ctx context.Context, p peer) error {
	in, err := s.js.Stream(ctx, p.stream)
	if err != nil {
		return err
	}
	names := in.ConsumerNames(ctx)
	for name := range names.Name() {
		err = errors.Join(err, in.DeleteConsumer(ctx, name))
	}
	if err := errors.Join(err, names.Err()); err != nil {
		return err
	}
	for _, name := range []string{resultStream, resultStream + "_DEADLETTER"} {
		if err := s.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	if !p.provisions {
		_, err = s.js.CreateStream(ctx, jetstream.StreamConfig{Name: resultStream, Subjects: []string{resultSubjects}})
	}
	return err
}

// verify reads all results back and checks them.
func (s *server) verify(ctx context.Context, l load) error {
	out, err := s.js.OrderedConsumer(ctx, resultStream, jetstream.OrderedConsumerConfig{FilterSubjects: []string{resultSubjects}})
	if err != nil {
		return err
	}
	messages, err := out.Messages(jetstream.PullMaxMessagesWithBytesLimit(8192, 16<<20))
	if err != nil {
		return err
	}
	defer messages.Stop()
	v := verifier{load: l, seen: make([]bool, l.total())}
	for pending := uint64(1); pending > 0; {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read results: %w", err)
		}
		at, err := m.Metadata()
		if err != nil {
			return err
		}
		pending = at.NumPending
		if err := v.add(m.Data()); err != nil {
			return err
		}
	}
	return v.complete()
}
