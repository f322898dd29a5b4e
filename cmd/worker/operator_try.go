package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"millrace/internal/device/cuda"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/devkit"
)

// `worker operator test` runs the operator in a child process, because a wrong pointer in the operator's code can crash
// the process. The child is the same command with more flags. Before each computation, it writes a finding to a file.
// The parent reports that finding if the child crashes.

type trial struct {
	file, query, samplesFolder string
	on                         string // auto, cuda or host
	brief, sanitize            bool

	// These are flags of the child, which the help doesn't show.
	separate, singly bool
	mark             string
}

func testOperatorCommand() *cobra.Command {
	t := &trial{}
	c := &cobra.Command{
		Use: "test FILE", Short: "compile an operator for the CPU and the GPU, test both and compare them",
		Long: "Compiles NAME.cu for the CPU with the machine's C++ compiler, and for the GPU with NVRTC. It runs the operator on both, over adversarial " +
			"batches and over samples, compares every byte, and prints the throughput. Each result must depend on its record and the parameters alone. " +
			"FILE may also be compiled: NAME.cpu.so, NAME.cubin, NAME.fatbin, NAME.ptx or NAME.so.\n\n" +
			"Exit status: 0 if every check passed, 1 if a check failed, 2 if the source doesn't compile or the usage is wrong.",
		Args: oneOf("file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.file = args[0]
			return t.run(cmd.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&t.samplesFolder, "on", "", "a `folder` with samples, one record per file; RECORD.json has the expected result of RECORD; the default is NAME.samples")
	f.StringVar(&t.query, "with", "", "`parameters`, like bits=5&seed=1")
	f.StringVar(&t.on, "device", "auto", "auto: the CPU, and a GPU if there is one; cuda: a GPU, compared with the CPU; host: the CPU")
	f.BoolVar(&t.sanitize, "sanitize", false, "run the GPU's part under compute-sanitizer memcheck, which finds wrong addresses in code that uses pointers")
	f.BoolVar(&t.brief, "brief", false, "omit the throughput, and records of a megabyte or more")
	f.BoolVar(&t.separate, "separate", false, "allocate each part of a batch separately, as tools need that check addresses")
	f.BoolVar(&t.singly, "singly", false, "only compute each record alone on the CPU")
	f.StringVar(&t.mark, "mark", "", "the `file` that says what is being computed")
	for _, hidden := range []string{"separate", "singly", "mark"} {
		f.Lookup(hidden).Hidden = true
	}
	complete(c, "device", "auto", "cuda", "host")
	return c
}

// run implements the command, in the child or the parent.
func (t *trial) run(ctx context.Context) error {
	if !slices.Contains([]string{"auto", "cuda", "host"}, t.on) || t.sanitize && t.on == "host" {
		return usageError{fmt.Errorf("operator test: --device %s: give auto, cuda or host, and no host with --sanitize", t.on)}
	}
	samples, err := devkit.ReadSamples(t.file, t.samplesFolder)
	switch {
	case err != nil:
		return err
	case t.mark != "" || t.separate:
		return t.test(ctx, samples)
	case t.sanitize:
		return t.underSanitizer(ctx)
	}
	return t.supervised(ctx)
}

// test tests the operator in this process.
func (t *trial) test(ctx context.Context, samples []devkit.Sample) error {
	trial := &devkit.Trial{File: t.file, Query: t.query, Samples: samples, Device: t.on, GPU: compileGPUs(), Out: os.Stdout, Brief: t.brief, Apart: t.separate}
	if t.mark != "" { // if a note can't be written, the report of a crash is only less exact
		trial.Before = func(device string, crash devkit.Finding) {
			_ = os.WriteFile(t.mark, fmt.Appendf(nil, "wrong on the %s: %v\n", device, crash), 0o600)
		}
	}
	run := trial.Run
	if t.singly {
		run = trial.RunSingly
	}
	err := operatorError(run(ctx))
	if t.mark != "" {
		err = errors.Join(err, os.WriteFile(t.mark, nil, 0o600)) // nothing crashed
	}
	return err
}

// operatorError returns err. If the user must correct the error, such as a source that doesn't compile, the result is a
// usage error.
func operatorError(err error) error {
	if errors.As(err, new(*cpulib.CompileError)) || errors.As(err, new(*cuda.CompileError)) || errors.As(err, new(devkit.BadUsage)) {
		return usageError{err}
	}
	return err
}

// command returns the command of the child. If program isn't empty, that program with its arguments runs the child.
func (t *trial) command(ctx context.Context, flags []string, program ...string) (*exec.Cmd, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	common := []string{own, "operator", "test", "--device", t.on, "--with", t.query, "--on", t.samplesFolder, fmt.Sprintf("--brief=%v", t.brief)}
	args := slices.Concat(program, common, flags, []string{"--", t.file})
	return exec.CommandContext(ctx, args[0], args[1:]...), nil
}

// supervised runs the child. If the child crashes, supervised reports the batch and, if possible, the record.
func (t *trial) supervised(ctx context.Context) error {
	crash, err := t.runChild(ctx, os.Stdout)
	if crash == "" {
		return err
	}
	if strings.HasPrefix(crash, "wrong on the CPU") {
		if record, _ := t.runChild(ctx, io.Discard, "--singly"); record != "" {
			crash = record
		}
	}
	fmt.Print(crash)
	return fmt.Errorf("%s: 1 checks failed, and the others were not tried", t.file)
}

// runChild runs the child. If the child crashed, runChild returns the finding that the child wrote last. Otherwise the
// error has the child's exit status, and the child has printed the reason.
func (t *trial) runChild(ctx context.Context, out io.Writer, flags ...string) (crash string, err error) {
	folder, err := os.MkdirTemp("", "millrace-operator-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	mark := filepath.Join(folder, "mark")
	command, err := t.command(ctx, append(flags, "--mark", mark))
	if err != nil {
		return "", err
	}
	var errs bytes.Buffer
	command.Stdout, command.Stderr = out, &errs
	err = command.Run()
	if note, _ := os.ReadFile(mark); err != nil && ctx.Err() == nil && len(note) > 0 { // without a note, there was no crash in a batch
		return string(note), nil
	}
	_, _ = io.Copy(os.Stderr, &errs)
	return "", childStatus(err)
}

// childStatus returns the error of the command for a child that ended with err and has already printed its errors.
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

// underSanitizer runs the child under compute-sanitizer, on the GPU only.
func (t *trial) underSanitizer(ctx context.Context) error {
	sanitizer, err := devkit.Sanitizer()
	if err != nil {
		return err
	}
	if _, err := compileGPUs().Computes(); err != nil {
		return fmt.Errorf("--sanitize needs a GPU: %w", err)
	}
	t.on, t.brief = "cuda", true
	command, err := t.command(ctx, []string{"--separate"}, sanitizer, "--tool", "memcheck", "--error-exitcode", fmt.Sprint(sanitizerFound))
	if err != nil {
		return err
	}
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	err = command.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == sanitizerFound {
		return errors.New("compute-sanitizer found wrong accesses: see above")
	}
	return childStatus(err)
}
