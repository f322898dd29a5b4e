package compiled

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBadDeclarationsAreRefused: the compiler rejects these declarations with advice.
func TestBadDeclarationsAreRefused(t *testing.T) {
	const (
		pass   = "MILLRACE_SCRATCH(uint32_t, s, 0, 1, 0)\nMILLRACE_PASS(p, 32, millrace::per_records(1), batch, params, scratch, team) {}\n"
		record = "MILLRACE_RECORD(record, params, result) {}\n"
	)
	compiler := compilers(t)[0]
	if compiler.missing != "" {
		t.Skip("SKIPPED: " + compiler.missing)
	}
	for name, c := range map[string]struct{ declarations, want string }{
		"huge table":          {"MILLRACE_TABLE(t, 16777217)", "table t: the tables of an operator have at most 16 MiB together"},
		"two large tables":    {"MILLRACE_TABLE(t, 16777215)\nMILLRACE_TABLE(u, 2)", "table u: the tables of an operator have at most 16 MiB together"},
		"no size":             {"MILLRACE_TABLE(t, 0)", "table t: its size must be at least 1"},
		"name of a table":     {"MILLRACE_TABLE(T, 9)", "table T: a name has lower-case letters"},
		"table and parameter": {"MILLRACE_PARAM(int, t, 1, 0, 2)\nMILLRACE_TABLE(t, 9)", "millrace_param_t"},
		"scratch without use": {"MILLRACE_SCRATCH(uint32_t, s, 0, 1, 0)\n" + record, "no pass fills the scratch memory: add one with MILLRACE_PASS"},
		"empty scratch":       {"MILLRACE_SCRATCH(uint32_t, s, 0, 0, 0)", "scratch s: give its number of elements"},
		"negative scratch":    {"MILLRACE_SCRATCH(uint32_t, s, 0, -1, 0)", "scratch s: give its number of elements"},
		"name of scratch":     {"MILLRACE_SCRATCH(uint32_t, s_, 0, 1, 0)", "scratch s_: a name has lower-case letters"},
		"huge scratch":        {"MILLRACE_SCRATCH(uint32_t, s, 1 << 28, 1, 0)", "scratch s: all scratch has at most 1 GiB"},
		"scratch per byte":    {"MILLRACE_SCRATCH(uint32_t, s, 0, 0, 128)\nMILLRACE_SCRATCH(uint64_t, r, 0, 0, 65)", "scratch r: all scratch has at most 1 GiB, 1 MiB per record and 1 KiB per byte"},
		"scratch twice":       {"MILLRACE_SCRATCH(uint32_t, s, 0, 1, 0)\nMILLRACE_SCRATCH(uint32_t, s, 0, 1, 0)", "millrace_scratch_s"},
		"scratch after pass":  {pass + "MILLRACE_SCRATCH(uint32_t, late, 0, 1, 0)", "scratch late: declare it before the first MILLRACE_PASS"},
		"pass without":        {strings.SplitN(pass, "\n", 2)[1], "pass p: declare what it fills with MILLRACE_SCRATCH before it"},
		"threads":             {strings.Replace(pass, "32, millrace", "33, millrace", 1), "pass p: give a multiple of 32 threads, at most 1024"},
		"name of a pass":      {strings.Replace(pass, "(p,", "(P,", 1), "pass P: a name has lower-case letters"},
		"no grid":             {strings.Replace(pass, "per_records(1)", "per_records(0)", 1), "pass p: its grid has at most one block per record or byte"},
		"huge grid":           {strings.Replace(pass, "per_records(1)", "blocks(65537)", 1), "pass p: its grid has at most one block per record or byte, and at most 65536"},
		"pass twice":          {pass + strings.SplitN(pass, "\n", 2)[1], "millrace_pass_p"},
		"atomic float":        {"MILLRACE_SCRATCH(float, s, 0, 1, 0)\nMILLRACE_PASS(p, 32, millrace::blocks(1), batch, params, scratch, team) { scratch.s.add(0, 1); }", "atomic functions of scratch memory need an integer of 32 or 64 bits"},
		"nine passes":         {pass + ninePasses() + record, "an operator has at most 8 passes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := filepath.Join(t.TempDir(), "bad.cu")
			text := "#include <millrace/operator.cuh>\nMILLRACE_OPERATOR(bad, 1)\nMILLRACE_RESULT(uint32_t, r)\n" + c.declarations + "\n"
			if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			output, err := compiler.command(source, filepath.Join(t.TempDir(), "bad.so")).CombinedOutput()
			if err == nil || !strings.Contains(string(output), c.want) {
				t.Errorf("error %v, want %q in\n%s", err, c.want, output)
			}
		})
	}
}

func ninePasses() (text string) {
	for _, name := range strings.Fields("a b c d e f g h") {
		text += "MILLRACE_PASS(" + name + ", 32, millrace::blocks(1), batch, params, scratch, team) {}\n"
	}
	return text
}
