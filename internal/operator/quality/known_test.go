package quality

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"millrace/client/quality"
)

// knownAnswers are texts with the counters from an independent program, which agrees with Curator's own classes.
type knownAnswers struct {
	Texts map[string]struct {
		Text     string
		Counters quality.Counters
	}
	Invalid map[string]struct {
		Hex, Replaced      string
		CountersOfReplaced quality.Counters `json:"counters_of_replaced"`
	}
}

func readKnown(t testing.TB) (known knownAnswers) {
	t.Helper()
	file, err := os.ReadFile("../../../client/quality/testdata/known.json")
	if err == nil {
		err = json.Unmarshal(file, &known)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(known.Texts) != 22 || len(known.Invalid) != 5 {
		t.Fatalf("%d texts and %d invalid ones, want 22 and 5", len(known.Texts), len(known.Invalid))
	}
	return known
}

// compare reports each counter that differs.
func compare(t *testing.T, name string, got Counters, want quality.Counters) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: %v is %d, want %d", name, quality.Counter(i), got[i], want[i])
		}
	}
}

// scanners maps the names of the implementations to the implementations.
var scanners = map[string]func(text []byte) (Counters, bool){
	"reference": func(text []byte) (Counters, bool) { return Reference(text, true) },
	"count": func(text []byte) (c Counters, ok bool) {
		ok = Count(&c, text, make([]byte, MemoryBytes(1, len(text), true)), true)
		return c, ok
	},
}

func TestKnownAnswers(t *testing.T) {
	known := readKnown(t)
	for scanner, scan := range scanners {
		for name, k := range known.Texts {
			c, ok := scan([]byte(k.Text))
			if !ok {
				t.Errorf("%s: %s is refused", scanner, name)
			}
			compare(t, scanner+" of "+name, c, k.Counters)
		}
		for name, k := range known.Invalid {
			data, err := hex.DecodeString(k.Hex)
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := scan(data); ok || c != (Counters{}) {
				t.Errorf("%s: %s has the counters %v, want a refusal and zeros", scanner, name, c)
			}
			c, _ := scan([]byte(k.Replaced))
			compare(t, scanner+" of replaced "+name, c, k.CountersOfReplaced)
		}
	}
}
