package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"millrace/internal/console"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/develop"
)

// operatorCommands lists the commands of `worker operator`.
func operatorCommands() []command {
	return []command{
		{"new", "write a commented operator and samples to start from: new NAME", newOperator},
		{"test", "compile an operator for the CPU and test it: test FILE.cu", testOperator},
		{"build", "compile an operator for the CPU: build FILE.cu", buildOperator},
		{"list", "describe the built-in operators, and compiled ones: list [FILE]...", listOperators},
	}
}

// runOperator implements `worker operator`.
func runOperator(ctx context.Context, args []string) error {
	f := flags("operator", "")
	f.Usage = func() { operatorHelp(f.Output()) }
	if err := parseFlags(f, args); err != nil {
		return err
	}
	for _, c := range operatorCommands() {
		if c.name == f.Arg(0) {
			return c.run(ctx, f.Args()[1:])
		}
	}
	operatorHelp(os.Stderr)
	if f.NArg() == 0 {
		return usageError{errors.New("operator: name one of its commands")}
	}
	return usageError{fmt.Errorf("operator: there is no command %q", f.Arg(0))}
}

func operatorHelp(w io.Writer) {
	_, _ = fmt.Fprint(w, "Writes, compiles and tests operators of your own. They run only on the CPU so far. To use NAME.cpu.so, name its folder in\n"+
		"MILLRACE_OPERATOR_PATH and NAME in MILLRACE_OPERATORS, and set MILLRACE_DEVICE=host.\n\nUsage: worker operator command\n\n")
	for _, c := range operatorCommands() {
		_, _ = fmt.Fprintf(w, "  %-6s %s\n", c.name, c.short)
	}
}

// parseNamed parses flags before and after arguments.
func parseNamed(f *flag.FlagSet, args []string) (names []string, err error) {
	for {
		if err := parseFlags(f, args); err != nil {
			return nil, err
		}
		if args = f.Args(); len(args) == 0 {
			return names, nil
		}
		names, args = append(names, args[0]), args[1:]
	}
}

// oneName parses flags and the only argument of a command.
func oneName(f *flag.FlagSet, args []string, what string) (string, error) {
	names, err := parseNamed(f, args)
	if err == nil && len(names) != 1 {
		err = usageError{fmt.Errorf("%s: give one %s, not %d: see worker %s -h", f.Name(), what, len(names), f.Name())}
	}
	if err != nil {
		return "", err
	}
	return names[0], nil
}

// newOperator implements `worker operator new`.
func newOperator(_ context.Context, args []string) error {
	f := flags("operator new", "Writes NAME.cu, and a folder NAME.samples with records and their expected results. It replaces no file.")
	folder := f.String("in", ".", "the `folder` for the files")
	name, err := oneName(f, args, "name")
	if err != nil {
		return err
	}
	written, err := develop.New(*folder, name)
	if err != nil {
		return err
	}
	for _, path := range written {
		fmt.Println("wrote", path)
	}
	fmt.Printf("next: worker operator test %s\n", written[0])
	return nil
}

// buildOperator implements `worker operator build`.
func buildOperator(ctx context.Context, args []string) error {
	f := flags("operator build", "Compiles NAME.cu for the CPU with the machine's C++ compiler and writes NAME.cpu.so.")
	folder := f.String("out", "", "the `folder` for the library; the default is that of the source")
	source, err := oneName(f, args, "file")
	if err != nil {
		return err
	}
	output := strings.TrimSuffix(source, develop.SourceSuffix) + develop.CPUSuffix
	if *folder != "" {
		output = filepath.Join(*folder, filepath.Base(output))
	}
	d, err := develop.Compile(ctx, source, output)
	if err != nil {
		return err
	}
	fmt.Printf("%s: operator %s, version %d, for the CPU\n", output, d.Name, d.Version)
	return nil
}

// testOperator implements `worker operator test`.
func testOperator(ctx context.Context, args []string) error {
	f := flags("operator test", "Compiles NAME.cu for the CPU with the machine's C++ compiler. It then runs the operator over adversarial batches and\n"+
		"over samples, and checks that each result depends on its record and the parameters alone.")
	folder := f.String("on", "", "a `folder` with samples, one record per file; RECORD.json has the expected result of RECORD; the default is NAME.samples")
	query := f.String("with", "", "`parameters`, like bits=5&seed=1")
	source, err := oneName(f, args, "file")
	if err != nil {
		return err
	}
	samples, err := develop.ReadSamples(source, *folder)
	if err != nil {
		return err
	}
	built, err := os.MkdirTemp("", "millrace-operator-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(built) }()
	library := filepath.Join(built, "operator"+develop.CPUSuffix)
	if _, err := develop.Compile(ctx, source, library); err != nil {
		return err
	}
	l, err := cpulib.Open(library)
	if err != nil {
		return err
	}
	l.Description().Folder = filepath.Dir(source) // where its tables are
	report, err := develop.Test(l, *query, samples)
	if err != nil {
		return err
	}
	return printReport(report, samples)
}

// printReport prints the results of samples, what is wrong, and a summary.
func printReport(r *develop.Report, samples []develop.Sample) error {
	if len(samples) > 0 {
		rows := [][]string{{"sample", "bytes", "result"}}
		for i, s := range samples {
			rows = append(rows, []string{s.Name, fmt.Sprint(len(s.Data)), r.Samples[i].String()})
		}
		if err := console.Table(os.Stdout, rows); err != nil {
			return err
		}
		fmt.Println()
	}
	for _, finding := range r.Findings {
		fmt.Println("wrong:", finding)
	}
	fmt.Printf("%s: %d records in adversarial batches, of which %d have a result; %.2f GB/s in records of %d bytes on the CPU\n",
		r.Spec, r.Records, r.Done, r.Rate/1e9, develop.RateBytes)
	if n := len(r.Findings); n > 0 {
		return fmt.Errorf("%s: %d checks failed", r.Spec, n)
	}
	fmt.Println("every check passed on the CPU; not compared with a GPU")
	return nil
}

// listOperators implements `worker operator list`.
func listOperators(_ context.Context, args []string) error {
	f := flags("operator list", "Describes the built-in operators, and those in the files that you name: cubins and libraries for the CPU.")
	files, err := parseNamed(f, args)
	if err != nil {
		return err
	}
	for _, d := range compiled.BuiltIn() {
		describe(os.Stdout, d, "built in")
	}
	var errs []error
	for _, path := range files {
		d, err := compiled.ReadFile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		describe(os.Stdout, d, path)
	}
	return errors.Join(errs...)
}

// describe prints what an operator says about itself.
func describe(w io.Writer, d *compiled.Description, from string) {
	_, _ = fmt.Fprintf(w, "%s, version %d, %s, %v\n", d.Name, d.Version, from, d.Form)
	for _, p := range d.Parameters {
		_, _ = fmt.Fprintf(w, "  parameter %s\n", p.Text())
	}
	for _, field := range d.Fields {
		_, _ = fmt.Fprintf(w, "  result    %s\n", d.Text(field))
	}
	for _, reason := range d.Reasons {
		_, _ = fmt.Fprintf(w, "  rejects   %s\n", reason)
	}
	for _, pass := range d.Passes {
		_, _ = fmt.Fprintf(w, "  pass      %s, %d threads per block\n", pass.Name, pass.Threads)
	}
	if s := d.Scratch; s != (compiled.Scratch{}) {
		_, _ = fmt.Fprintf(w, "  scratch   %d bytes, %d per record and %d per byte\n", s.Bytes, s.PerRow, s.PerByte)
	}
}
