//go:build cgo

package cuda_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/operator/compiled"
	"millrace/internal/operator/devkit"
	include "millrace/kernels/include"
)

// rateSizes are the sizes of records, in bytes, with which operators are measured.
var rateSizes = []int{256, 2 << 10, 64 << 10}

// BenchmarkOperatorsFromSource compares NVRTC's kernels with the kernels that the installed nvcc compiles from the same
// sources. It measures the kernels alternately. It reports their medians in GB/s and the ratio of the medians, by
// record size. The operators fixed and variable show the cost of byte strings.
//
//	cuda.test -test.run '^$' -test.bench OperatorsFromSource -test.benchtime 7x
func BenchmarkOperatorsFromSource(b *testing.B) {
	library, all := gpus(b)
	c, err := cuda.OpenCompiler(library, nvrtcLibrary())
	if err != nil {
		b.Skipf("NOT MEASURED: THERE IS NO NVRTC HERE: %v", err)
	}
	for _, file := range []string{
		"examples/operators/entropy/entropy.cu", "examples/operators/simhash/simhash.cu", "examples/operators/blake3/blake3.cu",
		"examples/operators/redact/redact.cu", "examples/operators/keywords/keywords.cu",
		"kernels/bench/operators/fixed.cu", "kernels/bench/operators/variable.cu",
	} {
		b.Run(filepath.Base(file), func(b *testing.B) {
			source := operatorSource(b, file, all[0].Compute)
			byNVRTC, _, err := c.Compile(source)
			if err != nil {
				b.Fatal(err)
			}
			d := open(b, library, all[0])
			defer func() { _ = d.Close() }()
			measureImages(b, d, file, [][]byte{byNVRTC, nvccImage(b, file, all[0].Compute)})
		})
	}
}

// nvccImage compiles an operator with the toolkit's nvcc.
func nvccImage(b *testing.B, file, compute string) []byte {
	b.Helper()
	nvcc, err := exec.LookPath("nvcc")
	if err != nil {
		b.Skipf("NOT MEASURED: THERE IS NO NVCC HERE: %v", err)
	}
	folder := b.TempDir()
	if err := os.CopyFS(folder, include.Headers); err != nil {
		b.Fatal(err)
	}
	output := filepath.Join(folder, "operator.cubin")
	out, err := exec.Command(nvcc, "-std=c++17", "--fmad=false", "-arch=sm_"+strings.ReplaceAll(compute, ".", ""), "-cubin", "-I"+folder,
		filepath.Join("..", "..", "..", file), "-o", output).CombinedOutput()
	if err != nil {
		b.Fatalf("nvcc: %v\n%s", err, out)
	}
	image, err := os.ReadFile(output)
	if err != nil {
		b.Fatal(err)
	}
	return image
}

// measureImages measures two images of the operator in file alternately. It reports the first image's rate and the
// ratio of both rates.
func measureImages(b *testing.B, d device.Device, file string, images [][]byte) {
	b.Helper()
	rates := make([][][]float64, len(rateSizes)) // indexed by size and image
	for i := range rates {
		rates[i] = make([][]float64, len(images))
	}
	for b.Loop() {
		for i, image := range images {
			for s, rate := range imageRates(b, d, file, image) {
				rates[s][i] = append(rates[s][i], rate)
			}
		}
	}
	for s, size := range rateSizes {
		nvrtc, nvcc := median(rates[s][0]), median(rates[s][1])
		label := "/" + strconv.Itoa(size)
		b.ReportMetric(nvrtc/1e9, "GB/s"+label)
		b.ReportMetric(nvrtc/nvcc, "of-nvcc"+label)
	}
	b.ReportMetric(0, "ns/op") // time per operation has no meaning here
}

// imageRates returns an image's throughput in bytes per second for each record size. The source's folder contains the
// files for parameters.
func imageRates(b *testing.B, d device.Device, file string, image []byte) (rates []float64) {
	b.Helper()
	m, err := load(d, image)
	if err != nil {
		b.Fatal(err)
	}
	description, err := compiled.Decode(m.Description())
	if err != nil {
		b.Fatal(err)
	}
	description.Folder = filepath.Join("..", "..", "..", filepath.Dir(file))
	o, err := description.Bind(map[string]string{"keywords": "words=words.txt"}[description.Name])
	if err != nil {
		b.Fatal(err)
	}
	r, err := devkit.Open(devkit.Subject{Device: d, Operator: o})
	if err != nil {
		b.Fatal(err)
	}
	for _, size := range rateSizes {
		rate, err := r.Rate(b.Context(), size)
		if err != nil {
			b.Fatal(err)
		}
		rates = append(rates, rate)
	}
	if err := errors.Join(r.Close(), m.Close()); err != nil {
		b.Fatal(err)
	}
	return rates
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkCompileAndLoad measures the time that a worker needs at its start for an operator's source. The steps are
// opening NVRTC (once per process), compiling and loading. With a cached image, only loading remains.
func BenchmarkCompileAndLoad(b *testing.B) {
	library, all := gpus(b)
	begin := time.Now()
	c, err := cuda.OpenCompiler(library, nvrtcLibrary())
	if err != nil {
		b.Skipf("NOT MEASURED: THERE IS NO NVRTC HERE: %v", err)
	}
	opening := time.Since(begin)
	d := open(b, library, all[0])
	defer func() { _ = d.Close() }()
	source := operatorSource(b, "examples/operators/entropy/entropy.cu", all[0].Compute)
	var compiling, loading []float64
	for b.Loop() {
		begin := time.Now()
		image, _, err := c.Compile(source)
		if err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		m, err := load(d, image)
		if err != nil {
			b.Fatal(err)
		}
		compiling = append(compiling, middle.Sub(begin).Seconds())
		loading = append(loading, time.Since(middle).Seconds())
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(1e3*opening.Seconds(), "ms-to-open-NVRTC")
	b.ReportMetric(1e3*median(compiling), "ms-to-compile")
	b.ReportMetric(1e3*median(loading), "ms-to-load")
	b.ReportMetric(0, "ns/op")
}
