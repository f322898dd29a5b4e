package operator

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for spec, want := range map[string]string{
		"crc32c":                           "crc32c",
		"minhash":                          "minhash?k=24&hashes=128&seed=42",
		"minhash?k=3":                      "minhash?k=3&hashes=128&seed=42",
		"minhash?seed=0&hashes=1024&k=256": "minhash?k=256&hashes=1024&seed=0",
		"minhash?seed=4294967295":          "minhash?k=24&hashes=128&seed=4294967295",
		"neardup":                          "neardup?bands=20&rows=13&k=24&seed=42",
		"neardup?seed=7&bands=64&rows=16":  "neardup?bands=64&rows=16&k=24&seed=7",
		"minhash?k=007":                    "minhash?k=7&hashes=128&seed=42",
	} {
		op, err := Parse(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		if op.String() != want {
			t.Errorf("%s: canonical spec %q, want %q", spec, op, want)
		}
	}
}

func TestParseErrorsSayWhatToDo(t *testing.T) {
	for spec, wants := range map[string][]string{
		"":                         {`unknown operator ""`, "crc32c, minhash"},
		"sha256":                   {`unknown operator "sha256"`, "crc32c, minhash"},
		"MinHash":                  {`unknown operator "MinHash"`},
		"crc32c?k=1":               {`"crc32c"`, "takes no parameters"},
		"crc32c?":                  {`"crc32c"`, "no parameter follows the question mark"},
		"minhash?":                 {`"minhash"`, "no parameter follows the question mark"},
		"minhash?&":                {`unknown parameter ""`, "k, hashes, seed"},
		"minhash?n=5":              {`"minhash"`, `unknown parameter "n"`, "k, hashes, seed"},
		"minhash?k=3&k=3":          {`"k" is given twice`},
		"minhash?k=0":              {`"k" is "0"`, "from 1 to 256"},
		"minhash?k=257":            {`"k" is "257"`, "from 1 to 256"},
		"minhash?hashes=1025":      {"from 1 to 1024"},
		"minhash?hashes=":          {`"hashes" is ""`, "from 1 to 1024"},
		"minhash?seed=-1":          {`"seed" is "-1"`, "from 0 to 4294967295"},
		"minhash?seed=4294967296":  {`"seed" is "4294967296"`, "from 0 to 4294967295"},
		"minhash?seed=1e3":         {`"seed" is "1e3"`},
		"neardup?bands=65":         {`"bands" is "65"`, "from 1 to 64"},
		"neardup?rows=0&records=9": {`"rows" is "0"`, `unknown parameter "records"`, "bands, rows, k, seed"},
		"neardup?bands=41&rows=25": {`operator "neardup"`, "bands times rows is 1025: set 1024 at most"},
		"minhash?k=0&x=1&seed=y":   {`"k" is "0"`, `"x"`, `"seed" is "y"`},
	} {
		op, err := Parse(spec)
		if err == nil {
			t.Errorf("%q: got %v, want an error", spec, op)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %q doesn't contain %q", spec, err, want)
			}
		}
	}
}

func TestParseList(t *testing.T) {
	ops, err := ParseList("minhash?k=5, crc32c")
	if err != nil {
		t.Fatal(err)
	}
	var specs []string
	for _, op := range ops {
		specs = append(specs, op.String())
	}
	if want := []string{"minhash?k=5&hashes=128&seed=42", "crc32c"}; !slices.Equal(specs, want) {
		t.Errorf("got %q, want %q", specs, want)
	}
}

func TestParseListNamesEveryProblem(t *testing.T) {
	for list, wants := range map[string][]string{
		"":                          {"no operator", "crc32c, minhash"},
		"  ":                        {"no operator"},
		"crc32c,,minhash":           {`unknown operator ""`},
		"crc32c,minhash,crc32c":     {`"crc32c" is given twice`},
		"minhash?k=1,minhash?k=2":   {`"minhash" is given twice`},
		"foo,minhash?k=0&j=1,,bar":  {`"foo"`, `"k" is "0"`, `"j"`, `""`, `"bar"`},
		"crc32c,crc32c,minhash?k=0": {"twice", `"k" is "0"`},
	} {
		ops, err := ParseList(list)
		if err == nil || ops != nil {
			t.Errorf("%q: got %v, %v, want only an error", list, ops, err)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %q doesn't contain %q", list, err, want)
			}
		}
	}
}

func TestParams(t *testing.T) {
	for spec, want := range map[string]string{
		"crc32c":  "",
		"minhash": "18000000" + "80000000" + "2a000000",
		"neardup": "14000000" + "0d000000" + "18000000" + "2a000000",
		"minhash?k=256&hashes=1024&seed=84281096": "00010000" + "00040000" + "08070605",
	} {
		if got := hex.EncodeToString(parse(t, spec).Params()); got != want {
			t.Errorf("%s: block %s, want %s", spec, got, want)
		}
	}
}

// TestEveryOperatorHasAHostKernel: each operator has a host kernel with its name and parameter block.
func TestEveryOperatorHasAHostKernel(t *testing.T) {
	for _, s := range builtIns {
		bind(t, parse(t, s.Name()))
	}
	if len(HostKernels()) != len(builtIns) {
		t.Errorf("%d host kernels for %d operators", len(HostKernels()), len(builtIns))
	}
}

func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"crc32c", "crc32c?", "minhash", "minhash?k=24&hashes=128&seed=42", "minhash?k=0", "minhash?k", "minhash?&", "?", "=", "minhash?k=9&k=9",
		"neardup?bands=64&rows=16", "neardup?bands=64&rows=17",
	} {
		f.Add(spec)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		op, err := Parse(spec)
		if (op == nil) == (err == nil) {
			t.Fatalf("%q: operator %v and error %v", spec, op, err)
		}
		if err != nil {
			return
		}
		again, err := Parse(op.String())
		if err != nil {
			t.Fatalf("%q: its canonical spec %q: %v", spec, op, err)
		}
		if again.String() != op.String() || !bytes.Equal(again.Params(), op.Params()) || again.Stride() != op.Stride() {
			t.Fatalf("%q: %v was parsed as %v", spec, op, again)
		}
	})
}
