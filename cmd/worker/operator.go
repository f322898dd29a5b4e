package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/internal/config"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/develop"
	"millrace/internal/operator/own"
)

// operatorCommands lists the commands of `worker operator`. One without a description is hidden from help.
func operatorCommands() []command {
	return []command{
		{"new", "write a commented operator and samples to start from: new NAME", newOperator},
		{"test", "compile an operator for the CPU and the GPU, test both and compare them: test FILE", testOperator},
		{"build", "compile an operator for GPUs or for the CPU: build FILE.cu", buildOperator},
		{"list", "describe every operator that the worker knows, and files: list [FILE]...", listOperators},
		{inProcess, "", testInProcess},
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
	_, _ = fmt.Fprint(w, "Writes, compiles and tests operators of your own. To use one, name its folder in MILLRACE_OPERATOR_PATH and its name in\n"+
		"MILLRACE_OPERATORS.\n\nUsage: worker operator command\n\n")
	for _, c := range operatorCommands() {
		if c.short != "" {
			_, _ = fmt.Fprintf(w, "  %-6s %s\n", c.name, c.short)
		}
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

// listOperators implements `worker operator list`.
func listOperators(_ context.Context, args []string) error {
	f := flags("operator list", "Describes every operator that the worker knows: the built-in ones, those in the folders of MILLRACE_OPERATOR_PATH, and those in\n"+
		"the compiled files that you name.")
	files, err := parseNamed(f, args)
	if err != nil {
		return err
	}
	for _, d := range compiled.BuiltIn() {
		describe(os.Stdout, d, "built in", "GPU, CPU")
	}
	cfg, _ := config.Load(nil) // only the folders count, and Find checks those
	var g own.GPUs
	if cfg.Device != "host" {
		g = &gpus{cfg: cfg} // compiles what is only a source
	}
	found, err := own.Find(cfg.OperatorPath, g)
	errs := []error{err}
	for _, s := range found {
		from := filepath.Join(s.Folder(), strings.Join(s.Files(), ", "))
		if d, err := s.Describe(); err != nil {
			fmt.Printf("%s, %s, can't be described: %v\n", s.Name(), from, err)
			if s.Err() != nil {
				errs = append(errs, err)
			}
		} else {
			describe(os.Stdout, d, from, devicesOf(s.Files()...))
		}
	}
	for _, path := range files {
		d, err := compiled.ReadFile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		describe(os.Stdout, d, path, devicesOf(path))
	}
	return errors.Join(errs...)
}

// devicesOf says on which devices an operator runs, by the names of its files.
func devicesOf(files ...string) string {
	var devices []string
	for _, one := range []struct {
		device   string
		suffixes []string
	}{{"GPU", append([]string{develop.SourceSuffix, develop.HostSuffix}, develop.GPUSuffixes...)}, {"CPU", []string{develop.CPUSuffix}}} {
		if slices.ContainsFunc(files, func(file string) bool {
			return slices.Contains(one.suffixes, strings.TrimPrefix(file, develop.Stem(file)))
		}) {
			devices = append(devices, one.device)
		}
	}
	return strings.Join(devices, ", ")
}

// describe prints what an operator says about itself.
func describe(w io.Writer, d *compiled.Description, from, devices string) {
	_, _ = fmt.Fprintf(w, "%s, version %d, %s, %v, runs on: %s\n", d.Name, d.Version, from, d.Form, devices)
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
