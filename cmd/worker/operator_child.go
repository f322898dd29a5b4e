package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/device/cuda"
	"millrace/internal/operator/conformance"
	"millrace/internal/operator/develop"
	"millrace/internal/operator/payloads"
)

// `worker operator test` runs the operator in a process of its own, because code that uses a wrong pointer ends the process. The child notes
// in a file what it computes. If it crashes, the parent reports that as a finding.

// inProcess is the command of the child. It is hidden from help.
const inProcess = "test-in-process"

// testOperatorCommand returns `worker operator test`.
func testOperatorCommand() *cobra.Command {
	t := &trial{}
	c := t.command()
	c.Use, c.Short = "test FILE", "compile an operator for the CPU and the GPU, test both and compare them"
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := t.open(args[0]); err != nil {
			return err
		}
		if t.sanitize {
			return t.underSanitizer(cmd.Context())
		}
		return t.supervised(cmd.Context())
	}
	return c
}

// testInProcessCommand returns the hidden command, which has more flags.
func testInProcessCommand() *cobra.Command {
	t := &trial{}
	c := t.command()
	c.Use, c.Hidden = inProcess+" FILE", true
	c.Flags().BoolVar(&t.separate, "separate", false, "allocate each part of a batch separately, as tools need that check addresses")
	c.Flags().BoolVar(&t.singly, "singly", false, "only compute each record alone on the CPU")
	c.Flags().StringVar(&t.mark, "mark", "", "the `file` that says what is being computed")
	c.RunE = func(cmd *cobra.Command, args []string) error { return testInProcess(cmd.Context(), t, args[0]) }
	return c
}

// testInProcess implements the hidden command.
func testInProcess(ctx context.Context, t *trial, file string) error {
	err := t.open(file)
	if err != nil {
		return err
	}
	err = t.run(ctx)
	if t.mark != "" {
		err = errors.Join(err, os.Truncate(t.mark, 0)) // nothing crashed
	}
	return err
}

// alone computes each record alone.
func (t *trial) alone(ctx context.Context, s *side) error {
	if s.missing != nil {
		return s.missing
	}
	o, err := s.description.Bind(t.query)
	if err != nil {
		return usageError{err}
	}
	if s.runner, err = conformance.Open(t.subject(s, o)); err != nil {
		return err
	}
	return s.runner.Singly(ctx, t.batches())
}

// note is what the child computes.
type note struct {
	Side, Batch string
	Record      int // -1 if it is a whole batch
}

// note remembers what is about to be computed, and writes it down. A note that can't be written only makes the report of a crash less exact.
func (t *trial) note(side, batch string, record int) {
	t.at = note{side, batch, record}
	if t.mark == "" {
		return
	}
	if text, err := json.Marshal(t.at); err == nil {
		_ = os.WriteFile(t.mark, text, 0o600)
	}
}

// arguments returns the arguments of the child.
func (t *trial) arguments(more ...string) []string {
	args := []string{"operator", inProcess, t.file, "--device", t.on, "--with", t.query, "--on", t.samplesFolder, fmt.Sprintf("--brief=%v", t.brief)}
	return append(args, more...)
}

// supervised runs the child. If it crashes, supervised reports in which batch and, if it can be found, in which record.
func (t *trial) supervised(ctx context.Context) error {
	at, err := t.child(ctx, os.Stdout)
	if at == nil {
		return err
	}
	if at.Side == "CPU" {
		if record, _ := t.child(ctx, io.Discard, "--singly"); record != nil {
			at = record
		}
	}
	f := conformance.Finding{Kind: conformance.Crashed, Batch: at.Batch, Record: at.Record, Data: t.record(at),
		Text: "the code crashed: look for a pointer outside the record or the result, or for a recursion that doesn't end"}
	fmt.Printf("wrong on the %s: %v\n", at.Side, f)
	return fmt.Errorf("%s: 1 checks failed, and the others were not tried", t.file)
}

// record returns the bytes of the record in a note.
func (t *trial) record(at *note) []byte {
	batches := t.batches()
	i := slices.IndexFunc(batches, func(set payloads.Set) bool { return set.Name == at.Batch })
	if i < 0 || at.Record < 0 || at.Record >= len(batches[i].Payloads) {
		return nil
	}
	return batches[i].Payloads[at.Record]
}

// child runs the child, and returns its last note if it crashed. Otherwise the error has the child's exit status, and the child has printed
// the reason.
func (t *trial) child(ctx context.Context, out io.Writer, more ...string) (crashed *note, err error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "millrace-operator-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	mark := filepath.Join(folder, "mark")
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, own, t.arguments(append(more, "--mark", mark)...)...)
	var errs bytes.Buffer
	command.Stdout, command.Stderr = out, &errs
	err = command.Run()
	text, _ := os.ReadFile(mark) // without a note, there was no crash in a batch
	var at note
	if err != nil && ctx.Err() == nil && json.Unmarshal(text, &at) == nil {
		return &at, nil
	}
	_, _ = io.Copy(os.Stderr, &errs)
	return nil, childStatus(err)
}

// childStatus returns the error for what exec returned for a child that has printed what is wrong.
func childStatus(err error) error {
	var exit *exec.ExitError
	switch {
	case !errors.As(err, &exit):
		return err
	case exit.ExitCode() == exitUsage:
		return usageError{errReported}
	}
	return errReported
}

// sanitizerFound is the exit status with which compute-sanitizer reports errors.
const sanitizerFound = 9

// underSanitizer runs the child under compute-sanitizer, for the GPU alone.
func (t *trial) underSanitizer(ctx context.Context) error {
	sanitizer, err := develop.Sanitizer()
	if err != nil {
		return err
	}
	cfg, _ := config.Load(nil) // a wrong kernel library or GPU has an error of its own
	if _, err := cuda.List(cfg.Kernels); err != nil {
		return fmt.Errorf("--sanitize needs a GPU: %w", err)
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	t.on, t.brief = "cuda", true
	args := append([]string{"--tool", "memcheck", "--error-exitcode", fmt.Sprint(sanitizerFound), own}, t.arguments("--separate")...)
	command := exec.CommandContext(ctx, sanitizer, args...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	err = command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == sanitizerFound {
		return errors.New("compute-sanitizer found wrong accesses: see above")
	}
	return childStatus(err)
}
