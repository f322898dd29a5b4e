package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"millrace/internal/config"
	"millrace/internal/operator"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/devkit"
)

func operatorCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "operator", Short: "write, compile and test operators of your own",
		Long: "Writes, compiles and tests operators of your own. To use one, name its folder in MILLRACE_OPERATOR_PATH and its name in MILLRACE_OPERATORS.",
	}
	needsCommand(c)
	c.AddCommand(newOperatorCommand(), testOperatorCommand(), buildOperatorCommand(), listOperatorsCommand())
	return c
}

func newOperatorCommand() *cobra.Command {
	folder := ""
	c := &cobra.Command{
		Use: "new NAME", Short: "write a commented operator and samples to start from",
		Long: "Writes NAME.cu, and a folder NAME.samples with records and their expected results. It replaces no file.",
		Args: oneOf("name"), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error { return newOperator(folder, args[0]) },
	}
	c.Flags().StringVar(&folder, "in", ".", "the `folder` for the files")
	return c
}

func newOperator(folder, name string) error {
	written, err := devkit.New(folder, name)
	if err != nil {
		return err
	}
	for _, path := range written {
		fmt.Println("wrote", path)
	}
	fmt.Printf("next: worker operator test %s\n", written[0])
	return nil
}

func listOperatorsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list [FILE]...", Short: "describe every operator that the worker knows, and files",
		Long: "Describes every operator that the worker knows: the built-in ones, those in the folders of MILLRACE_OPERATOR_PATH, and those in the " +
			"compiled files that you name.",
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, files []string) error { return listOperators(files) },
	}
}

func listOperators(files []string) error {
	for _, d := range compiled.BuiltIn() {
		devices := "GPU, CPU"
		if variant := operator.HostVariant(d.Name); variant != "" {
			devices += " (" + variant + ")"
		}
		describe(os.Stdout, d, "built in", devices)
	}
	cfg, _ := config.Load(nil) // only the folders matter, and findOwn checks them
	found, err := findOwn(cfg) // also compiles operators without a compiled file
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
		if err := compiled.CheckName(d.Name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			continue
		}
		describe(os.Stdout, d, path, devicesOf(path))
	}
	return errors.Join(errs...)
}

// devicesOf returns the devices on which an operator runs, according to the names of its files.
func devicesOf(files ...string) string {
	var devices []string
	for _, file := range files {
		device := "GPU"
		if _, suffix := compiled.CutSuffix(file); suffix == compiled.CPUSuffix {
			device = "CPU"
		}
		if !slices.Contains(devices, device) {
			devices = append(devices, device)
		}
	}
	return strings.Join(devices, ", ")
}

// fieldTexts returns the name and the type of each field of an operator's values. The description of a stateful operator has the fields of
// its kernel instead.
func fieldTexts(d *compiled.Description) (texts []string) {
	if op, err := operator.Parse(d.Name); err == nil && operator.HasState([]operator.Operator{op}) {
		return operator.ArrowColumns([]operator.Operator{op})[0].Types()
	}
	for _, f := range d.Fields {
		texts = append(texts, d.Text(f))
	}
	return texts
}

func describe(w io.Writer, d *compiled.Description, from, devices string) {
	_, _ = fmt.Fprintf(w, "%s, version %d, %s, %v, runs on: %s\n", d.Name, d.Version, from, d.Form, devices)
	for _, p := range d.Parameters {
		_, _ = fmt.Fprintf(w, "  parameter %s\n", p.Text())
	}
	for _, field := range fieldTexts(d) {
		_, _ = fmt.Fprintf(w, "  result    %s\n", field)
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
