package operator

import (
	"strings"
	"testing"

	"millrace/internal/corpus"
)

func TestCheckTakesWhatIsRight(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?hashes=8")
	for _, f := range []Format{JSON, Binary, Arrow} {
		for _, payload := range corpus.InvalidUTF8(81) {
			if err := f.Check(ops, payload, message(f, ops, payload)); err != nil {
				t.Errorf("%v of %q: %v", f, payload, err)
			}
		}
	}
}

// TestCheckSeesEveryByte: Check detects a change of any byte of a message.
func TestCheckSeesEveryByte(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=4&hashes=2")
	payload := []byte("123456789")
	for _, f := range []Format{JSON, Binary, Arrow} {
		body := message(f, ops, payload)
		for i := range body {
			body[i] ^= 1
			if f.Check(ops, payload, body) == nil {
				t.Errorf("%v: Check didn't detect the change of byte %d", f, i)
			}
			body[i] ^= 1
		}
		if f.Check(ops, payload, append(body, ' ')) == nil {
			t.Errorf("%v: Check didn't detect an additional byte", f)
		}
	}
}

func TestCheckSaysWhatDiffers(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=4&hashes=2")
	payload := []byte("123456789")
	good := message(JSON, ops, payload)
	for body, want := range map[string]string{
		"oops": "4 bytes, want 93; byte 0 differs: got \"oops\"",
		strings.Replace(string(good), "e3069283", "e3069284", 1): `byte 28 differs: got "2c\":\"e3069284`,
		string(good[:len(good)-1]):                               `byte 92 differs`,
	} {
		if err := JSON.Check(ops, payload, []byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v doesn't contain %q", body, err, want)
		}
	}
}
