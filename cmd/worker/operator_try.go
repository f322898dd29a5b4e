package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/conformance"
	"millrace/internal/operator/develop"
	"millrace/internal/operator/payloads"
)

// trial is one run of `worker operator test`.
type trial struct {
	file, query, samplesFolder string
	on                         string // auto, cuda or host
	brief, sanitize            bool

	// Those of the hidden command.
	separate, singly bool
	mark             string

	samples []develop.Sample
	at      note // what is being computed
	waited  note // what waiting printed last
}

// command returns a command that tests one file, with the flags that every trial has.
func (t *trial) command() *cobra.Command {
	c := &cobra.Command{
		Long: "Compiles NAME.cu for the CPU with the machine's C++ compiler, and for the GPU with NVRTC. It runs the operator on both, over adversarial " +
			"batches and over samples, compares every byte, and prints the throughput. Each result must depend on its record and the parameters alone. " +
			"FILE may also be compiled: NAME.cpu.so, NAME.cubin, NAME.fatbin, NAME.ptx or NAME.so.\n\n" +
			"Exit status: 0 every check passed, 1 something is wrong, 2 the source doesn't compile, or bad usage.",
		Args: oneOf("file"),
	}
	f := c.Flags()
	f.StringVar(&t.samplesFolder, "on", "", "a `folder` with samples, one record per file; RECORD.json has the expected result of RECORD; the default is NAME.samples")
	f.StringVar(&t.query, "with", "", "`parameters`, like bits=5&seed=1")
	f.StringVar(&t.on, "device", "auto", "auto: the CPU, and a GPU if there is one; cuda: a GPU, compared with the CPU; host: the CPU")
	f.BoolVar(&t.sanitize, "sanitize", false, "run the GPU's part under compute-sanitizer memcheck, which finds wrong addresses in code that uses pointers")
	f.BoolVar(&t.brief, "brief", false, "omit the throughput, and records of a megabyte or more")
	complete(c, "device", "auto", "cuda", "host")
	return c
}

// open checks the flags and reads the samples.
func (t *trial) open(file string) (err error) {
	t.file = file
	if !slices.Contains([]string{"auto", "cuda", "host"}, t.on) || t.sanitize && t.on == "host" {
		return usageError{fmt.Errorf("operator test: --device %s: give auto, cuda or host, and no host with --sanitize", t.on)}
	}
	t.samples, err = develop.ReadSamples(t.file, t.samplesFolder)
	return err
}

// batches returns the batches of the suite, and the samples.
func (t *trial) batches() []payloads.Set {
	batches := conformance.Batches(1)
	if len(t.samples) > 0 {
		batches = append(batches, payloads.Set{Name: develop.SamplesBatch, Payloads: develop.Records(t.samples)})
	}
	return batches
}

// run opens the sides, tests them, and prints the report.
func (t *trial) run(ctx context.Context) error {
	files, err := findFiles(t.file)
	if err != nil {
		return err
	}
	cfg, _ := config.Load(nil) // only the kernel library and the GPUs count, and a wrong one of these has an error of its own
	cpu, err := openCPU(ctx, files)
	if err != nil {
		return err
	}
	if t.singly {
		return errors.Join(t.alone(ctx, cpu), cpu.close())
	}
	gpu := &side{name: "GPU", missing: errors.New("--device host was given")}
	if t.on != "host" {
		if gpu, err = openGPU(files, cfg); err != nil {
			return errors.Join(err, cpu.close())
		}
	}
	err = t.both(ctx, cpu, gpu)
	return errors.Join(err, cpu.close(), gpu.close())
}

// both tests the sides that there are, the CPU first. Results of the GPU are compared with those of the CPU.
func (t *trial) both(ctx context.Context, cpu, gpu *side) error {
	switch {
	case t.on == "cuda" && gpu.missing != nil:
		return fmt.Errorf("--device cuda: %w", gpu.missing)
	case cpu.missing != nil && gpu.missing != nil:
		return fmt.Errorf("nothing can run %s:\nCPU: %w\nGPU: %w", t.file, cpu.missing, gpu.missing)
	case cpu.missing == nil && gpu.missing == nil:
		if err := sameDeclarations(cpu.description, gpu.description); err != nil {
			return err
		}
	}
	if err := ownNames(t.file, cpu, gpu); err != nil {
		return err
	}
	var outcomes []develop.Outcome
	var reference *side
	var o *compiled.Operator
	for _, s := range []*side{cpu, gpu} {
		if s.missing != nil {
			outcomes = append(outcomes, develop.Outcome{Device: s.name, Missing: s.missing})
			continue
		}
		var err error
		if o, err = s.description.Bind(t.query); err != nil {
			return usageError{err}
		}
		outcome, err := t.one(ctx, s, o, reference)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		outcomes = append(outcomes, outcome)
		if !s.stopped {
			reference = s
		}
	}
	if n := develop.Print(os.Stdout, o, t.samples, outcomes); n > 0 {
		return fmt.Errorf("%s: %d checks failed", o, n)
	}
	return nil
}

// one tests one side. With --device cuda, the CPU is only there for comparison.
func (t *trial) one(ctx context.Context, s *side, o *compiled.Operator, reference *side) (outcome develop.Outcome, err error) {
	outcome = develop.Outcome{Device: s.name, With: s.with}
	if s.runner, err = conformance.Open(t.subject(s, o)); err != nil {
		return outcome, err
	}
	if s.name == "CPU" && t.on == "cuda" {
		outcome.Missing = errors.New("only results of the GPU were asked for")
		return outcome, nil
	}
	var other *conformance.Runner
	if reference != nil {
		other, outcome.Against = reference.runner, reference.name
	}
	err = t.test(ctx, s.runner, other, &outcome)
	s.stopped = err == nil && outcome.Report.Stopped
	return outcome, err
}

// subject returns what the suite tests on one side.
func (t *trial) subject(s *side, o *compiled.Operator) conformance.Subject {
	return conformance.Subject{Device: s.device, Operator: o, Apart: t.separate, Brief: t.brief, Patience: t.patience(),
		Before: func(batch string, record int) { t.note(s.name, batch, record) }, Waiting: t.waiting}
}

// patience returns the time that a batch may take. Under a sanitizer, batches take much longer.
func (t *trial) patience() time.Duration {
	if t.separate {
		return 10 * time.Minute
	}
	return time.Minute
}

// waiting prints which batch takes long, once for each batch.
func (t *trial) waiting() {
	if t.at == t.waited {
		return
	}
	t.waited = t.at
	fmt.Printf("the %s still computes batch %q: waiting for up to %v; if that is unexpected, look for a loop that doesn't end\n", t.at.Side, t.at.Batch, t.patience())
}

// test runs the suite, the samples and the measurements on one side.
func (t *trial) test(ctx context.Context, r, reference *conformance.Runner, outcome *develop.Outcome) (err error) {
	if outcome.Report, err = r.Test(ctx, t.batches(), reference); err != nil {
		return err
	}
	if outcome.Report.Stopped {
		return nil
	}
	if len(t.samples) > 0 {
		t.note(outcome.Device, develop.SamplesBatch, -1)
		var found *conformance.Finding // which the suite has reported
		if outcome.Answers, err = r.Compute(ctx, develop.Records(t.samples)); errors.As(err, &found) {
			return nil
		}
		if err != nil {
			return err
		}
		outcome.Report.Findings = append(outcome.Report.Findings, develop.CheckSamples(t.samples, outcome.Answers)...)
	}
	return t.measure(ctx, r, outcome)
}

// measure measures the throughput of an operator without findings.
func (t *trial) measure(ctx context.Context, r *conformance.Runner, outcome *develop.Outcome) error {
	if t.brief || len(outcome.Report.Findings) > 0 {
		return nil
	}
	for _, bytes := range develop.RateBytes {
		t.note(outcome.Device, fmt.Sprintf("records of %d bytes", bytes), -1)
		rate, err := r.Rate(ctx, bytes)
		if err != nil {
			return err
		}
		outcome.Rates = append(outcome.Rates, rate)
	}
	return nil
}
