package operator

import (
	"strings"
	"testing"

	"millrace/internal/operator/payloads"
)

func TestCheckTakesWhatIsRight(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?hashes=8")
	for _, f := range []Format{JSON, Binary, Arrow} {
		for _, payload := range payloads.InvalidUTF8(81) {
			if err := f.Check(ops, payload, message(f, ops, payload)); err != nil {
				t.Errorf("%v of %q: %v", f, payload, err)
			}
		}
	}
}

// Check detects a change of any byte of a message.
func TestCheckSeesEveryByte(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=4&hashes=2")
	payload := []byte("123456789")
	for _, f := range []Format{JSON, Binary, Arrow} {
		body := message(f, ops, payload)
		for i := range body {
			body[i] ^= 1
			if f.Check(ops, payload, body) == nil {
				t.Errorf("%v: byte %d changed, and nothing was said", f, i)
			}
			body[i] ^= 1
		}
		if f.Check(ops, payload, append(body, ' ')) == nil {
			t.Errorf("%v: a byte too many, and nothing was said", f)
		}
	}
}

func TestCheckSaysWhatDiffers(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=4&hashes=2")
	payload := []byte("123456789")
	change := func(f Format, old, other string) []byte {
		body := string(message(f, ops, payload))
		if !strings.Contains(body, old) {
			t.Fatalf("%v: no %q to change", f, old)
		}
		return []byte(strings.Replace(body, old, other, 1))
	}
	for _, c := range []struct {
		name string
		f    Format
		body []byte
		want []string
	}{
		{"not JSON", JSON, []byte("oops"), []string{"not a JSON result"}},
		{"bytes", JSON, change(JSON, ":9,", ":8,"), []string{"bytes: differs at byte 0", `got "8"`, `want "9"`}},
		{"checksum", JSON, change(JSON, "e3069283", "e3069284"), []string{"crc32c: differs at byte 8"}},
		{"entry", JSON, change(JSON, "1669869904", "1669869905"), []string{"minhash: differs", "1669869905", "1669869904"}},
		{"missing", JSON, change(JSON, `"crc32c":"e3069283",`, ""), []string{"crc32c: missing"}},
		{"a key more", JSON, change(JSON, "{", `{"x":1,`), []string{"got 4 keys, want 3"}},
		{"spaces", JSON, change(JSON, ":9,", ": 9,"), []string{"values are right", "encoding differs"}},
		{"not binary", Binary, []byte("oops"), []string{"not a binary result"}},
		{"payload bytes", Binary, change(Binary, "\x09\x00", "\x08\x00"), []string{"payload bytes: got 8, want 9"}},
		{"record", Binary, change(Binary, "\x83\x92\x06\xe3", "\x84\x92\x06\xe3"), []string{"crc32c: differs", "e3069284", "e3069283"}},
		{"parameters", Binary, change(Binary, "seed=1", "seed=2"), []string{"operator 2", "seed=2"}},
		{"an operator less", Binary, message(Binary, ops[:1], payload), []string{"results: got 1, want 2"}},
	} {
		err := c.f.Check(ops, payload, c.body)
		if err == nil {
			t.Errorf("%s: nothing was said", c.name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not say %q", c.name, err, want)
			}
		}
	}
}
