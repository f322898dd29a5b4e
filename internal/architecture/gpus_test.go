package architecture

import (
	"fmt"
	"regexp"
	"strings"
)

// The files that list the GPUs that the kernels are built for.
const (
	gpusPage     = "docs/gpus.md"
	kernelsMake  = "kernels/Makefile"
	fakeCompiler = "internal/device/cuda/fakecuda/fakecuda.go"
)

var (
	wantedLine   = regexp.MustCompile(`(?m)^WANTED\s*:=([ 0-9]+)$`)
	machineCode  = regexp.MustCompile("`sm_([0-9]+)`")
	fakeArchList = regexp.MustCompile(`__CUDA_ARCH_LIST__=([0-9]+)`)
)

// gpusAreListed compares the page of supported GPUs with the kernels' Makefile, and with the lowest architecture that
// the fake CUDA compiles for.
var gpusAreListed = rule{
	name: "the page of GPUs lists what the kernels are built for",
	check: func(tr *tree) (found []string) {
		texts := map[string]string{}
		for _, f := range tr.files {
			texts[f.path] = f.text
		}
		wanted := wantedLine.FindStringSubmatch(texts[kernelsMake])
		if wanted == nil {
			return []string{kernelsMake + ": there is no line WANTED := with compute capabilities"}
		}
		listed := map[string]bool{}
		for _, m := range machineCode.FindAllStringSubmatch(texts[gpusPage], -1) {
			listed[m[1]] = true
		}
		capabilities := strings.Fields(wanted[1])
		for _, c := range capabilities {
			if !listed[c] {
				found = append(found, fmt.Sprintf("%s: `sm_%s` is missing, and %s builds it", gpusPage, c, kernelsMake))
			}
			delete(listed, c)
		}
		for c := range listed {
			found = append(found, fmt.Sprintf("%s: `sm_%s` is not in WANTED of %s", gpusPage, c, kernelsMake))
		}
		if m := fakeArchList.FindStringSubmatch(texts[fakeCompiler]); m == nil || m[1] != capabilities[0]+"0" {
			found = append(found, fmt.Sprintf("%s: the first of __CUDA_ARCH_LIST__ is not %s0, the least of %s", fakeCompiler, capabilities[0], kernelsMake))
		}
		return found
	},
	broken: map[string]string{
		kernelsMake:  "WANTED := 75 80\n",
		gpusPage:     "`sm_80` and `sm_90`\n",
		fakeCompiler: "package fakecuda\n\nconst architectures = \"-D__CUDA_ARCH_LIST__=800,900\"\n",
	},
	findings: []string{
		"docs/gpus.md: `sm_75` is missing, and kernels/Makefile builds it",
		"docs/gpus.md: `sm_90` is not in WANTED of kernels/Makefile",
		"internal/device/cuda/fakecuda/fakecuda.go: the first of __CUDA_ARCH_LIST__ is not 750, the least of kernels/Makefile",
	},
}
