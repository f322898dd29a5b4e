package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/internal/operator/compiled"
	"millrace/internal/operator/cpulib"
	"millrace/internal/operator/devkit"
	"millrace/internal/operator/images"
)

type buildFlags struct {
	folder, arch string
	cpu          bool
}

func buildOperatorCommand() *cobra.Command {
	f := &buildFlags{}
	c := &cobra.Command{
		Use: "build FILE.cu", Short: "compile an operator for GPUs or for the CPU",
		Long: "Compiles NAME.cu for GPUs with NVRTC (--arch), for the CPU with the machine's C++ compiler (--cpu), or for both. It writes NAME.cubin for " +
			"one architecture, NAME.fatbin for several, and NAME.cpu.so for the CPU. Without --arch it compiles for the CPU.",
		Args: oneOf("file"),
		RunE: func(cmd *cobra.Command, args []string) error { return buildOperator(cmd.Context(), f, args[0]) },
	}
	c.Flags().StringVar(&f.folder, "out", "", "the `folder` for the files; the default is that of the source")
	c.Flags().StringVar(&f.arch, "arch", "", "the GPUs' `architectures`, such as 80,90: 80 is A100, 90 is H100 and H200")
	c.Flags().BoolVar(&f.cpu, "cpu", false, "compile for the CPU too")
	return c
}

func buildOperator(ctx context.Context, f *buildFlags, source string) error {
	_, text, err := compiled.ReadSource(source)
	if err != nil {
		return err
	}
	computes, err := architectures(f.arch)
	if err != nil {
		return usageError{err}
	}
	stem, _ := compiled.CutSuffix(source)
	if f.folder != "" {
		stem = filepath.Join(f.folder, filepath.Base(stem))
	}
	if len(computes) > 0 {
		if err := buildForGPUs(ctx, images.Source{Name: source, Text: text}, stem, computes); err != nil {
			return operatorError(err)
		}
	}
	if f.cpu || len(computes) == 0 {
		output := stem + compiled.CPUSuffix
		d, err := cpulib.Compile(ctx, source, output)
		if err != nil {
			return operatorError(err)
		}
		fmt.Printf("%s: operator %s, version %d, for the CPU\n", output, d.Name, d.Version)
	}
	return nil
}

// architectures converts a list such as "80,90" to compute capabilities such as "8.0" and "9.0", without duplicates.
func architectures(list string) (computes []string, err error) {
	if list == "" {
		return nil, nil
	}
	seen := map[int]bool{}
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(text), "sm_"))
		if err != nil || n < 50 || n > 999 {
			return nil, fmt.Errorf("operator build: --arch %s: give numbers with commas between them, such as 80,90", list)
		}
		if !seen[n] {
			computes = append(computes, fmt.Sprintf("%d.%d", n/10, n%10))
		}
		seen[n] = true
	}
	return computes, nil
}

// buildForGPUs compiles source for the compute capabilities. It writes stem.cubin for one capability, and stem.fatbin
// for several.
func buildForGPUs(ctx context.Context, source images.Source, stem string, computes []string) error {
	g := compileGPUs()
	version, err := g.Compiler()
	if err != nil {
		return err
	}
	var cubins [][]byte
	var d *compiled.Description
	for _, compute := range computes {
		image, err := g.Image(source, compute)
		if err != nil {
			return err
		}
		if d, err = compiled.ReadCompiled(source.Name, image.Code); err != nil {
			return err
		}
		cubins = append(cubins, image.Code)
	}
	output, contents := stem+compiled.CubinSuffix, cubins[0]
	if len(cubins) > 1 {
		output = stem + compiled.FatbinSuffix
		if contents, err = devkit.Fatbin(ctx, computes, cubins); err != nil {
			return err
		}
	}
	if err := devkit.WriteFile(output, contents); err != nil {
		return err
	}
	fmt.Printf("%s: operator %s, version %d, for GPUs of compute capability %s, compiled with NVRTC %s\n", output, d.Name, d.Version,
		strings.Join(computes, ", "), version)
	return nil
}
