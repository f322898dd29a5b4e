package operator

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"millrace/internal/corpus"
)

func parseList(t testing.TB, list string) []Operator {
	t.Helper()
	ops, err := ParseList(list)
	if err != nil {
		t.Fatal(err)
	}
	return ops
}

// message returns the result body of ops for a payload.
func message(f Format, ops []Operator, payload []byte) []byte {
	var records [][]byte
	for _, op := range ops {
		records = append(records, op.AppendReference(nil, payload))
	}
	return f.Append(nil, ops, len(payload), records)
}

func TestFormatsAreParsed(t *testing.T) {
	var got Format
	for _, f := range []Format{JSON, Binary, Arrow, Annotated} {
		if err := got.UnmarshalText([]byte(f.String())); err != nil || got != f {
			t.Errorf("%v: got %v, %v", f, got, err)
		}
	}
	if err := got.UnmarshalText([]byte("xml")); err == nil || !strings.Contains(err.Error(), "json, binary, arrow") {
		t.Errorf("xml: error %v doesn't list the known formats", err)
	}
}

func TestJSONBytes(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?k=4&hashes=2")
	for payload, want := range map[string]string{
		"123456789": `{"bytes":9,"crc32c":"e3069283","minhash":{"k":4,"seed":42,"signature":[529274414,833389941]}}`,
		"":          `{"bytes":0,"crc32c":"00000000","minhash":{"k":4,"seed":42,"signature":[0,0]}}`,
	} {
		if got := string(message(JSON, ops, []byte(payload))); got != want {
			t.Errorf("%q: %s, want %s", payload, got, want)
		}
	}
	if got, want := string(message(JSON, ops[1:], nil)), `{"bytes":0,"minhash":{"k":4,"seed":42,"signature":[0,0]}}`; got != want {
		t.Errorf("minhash alone: %s, want %s", got, want)
	}
}

func TestJSONAsOthersReadIt(t *testing.T) {
	ops := parseList(t, "minhash?seed=4294967295&hashes=33,crc32c")
	for _, payload := range corpus.InvalidUTF8(61) {
		var got struct {
			Bytes   int
			CRC32C  string
			Minhash struct {
				K         int
				Seed      uint32
				Signature []uint32
			}
		}
		if err := json.Unmarshal(message(JSON, ops, payload), &got); err != nil {
			t.Fatal(err)
		}
		checksum, err := hex.DecodeString(got.CRC32C)
		if err != nil || len(checksum) != 4 {
			t.Fatalf("crc32c %q is not eight hex digits (%v)", got.CRC32C, err)
		}
		if want := binary.LittleEndian.Uint32(ops[1].AppendReference(nil, payload)); binary.BigEndian.Uint32(checksum) != want {
			t.Errorf("crc32c is %q, want %08x", got.CRC32C, want)
		}
		if got.Bytes != len(payload) || got.Minhash.K != 24 || got.Minhash.Seed != math.MaxUint32 {
			t.Errorf("bytes, k and seed are %d, %d and %d", got.Bytes, got.Minhash.K, got.Minhash.Seed)
		}
		if want := signature(t, ops[0].String(), payload); !reflect.DeepEqual(got.Minhash.Signature, want) {
			t.Errorf("signature %v, want %v", got.Minhash.Signature, want)
		}
	}
}

// TestMaxBoundsEveryResult compares the bound with the bodies of payloads, and with the longest possible body, whose
// records have all bits set.
func TestMaxBoundsEveryResult(t *testing.T) {
	for _, list := range []string{"crc32c", "minhash", "crc32c,minhash?k=256&hashes=1024&seed=4294967295", "minhash?k=1&hashes=1,crc32c"} {
		ops := parseList(t, list)
		var ones [][]byte
		for _, op := range ops {
			ones = append(ones, bytes.Repeat([]byte{0xFF}, op.Stride()))
		}
		for _, f := range []Format{JSON, Binary, Arrow} {
			maximum, longest := f.MaxBytes(ops, 0), len(f.Append(nil, ops, math.MaxInt64, ones))
			if longest > maximum {
				t.Errorf("%s as %v: a body of %d bytes, and MaxBytes is %d", list, f, longest, maximum)
			}
			slack := 32 * len(ops)
			if f == Arrow {
				slack += 64 + 128*len(ops) // the bound ignores the packing of the metadata
			}
			if maximum > longest+slack {
				t.Errorf("%s as %v: MaxBytes is %d, far above the longest body of %d bytes", list, f, maximum, longest)
			}
			for _, payload := range corpus.Lengths(73, 40) {
				if n := len(message(f, ops, payload)); n > maximum {
					t.Errorf("%s as %v: a payload of %d bytes has a body of %d bytes, and MaxBytes is %d", list, f, len(payload), n, maximum)
				}
			}
		}
	}
}

func TestAppendAllocatesNothing(t *testing.T) {
	ops := parseList(t, "crc32c,minhash")
	payload := corpus.Text(1, 2048)
	records := [][]byte{ops[0].AppendReference(nil, payload), ops[1].AppendReference(nil, payload)}
	for _, f := range []Format{JSON, Binary} {
		body := f.Append(nil, ops, len(payload), records)
		if n := testing.AllocsPerRun(100, func() { body = f.Append(body[:0], ops, len(payload), records) }); n != 0 {
			t.Errorf("%v: %v allocations per message", f, n)
		}
	}
}

func TestAppendPanicsOnRecordsOfOthers(t *testing.T) {
	ops := parseList(t, "crc32c,minhash?hashes=2")
	for name, records := range map[string][][]byte{
		"one record":    {make([]byte, 4)},
		"wrong strides": {make([]byte, 8), make([]byte, 8)},
		"swapped":       {make([]byte, 8), make([]byte, 4)},
	} {
		for _, f := range []Format{JSON, Binary, Arrow} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v, %s: no panic", f, name)
					}
				}()
				f.Append(nil, ops, 1, records)
			}()
		}
	}
}

// TestResultsDocument: the example in the documentation matches the code's output.
func TestResultsDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/results.md")
	if err != nil {
		t.Fatal(err)
	}
	ops := parseList(t, "crc32c,minhash?k=4&hashes=2")
	payload := []byte("123456789")

	block := regexp.MustCompile("(?s)```hexdump\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/results.md has no hexdump block")
	}
	var digits strings.Builder
	for line := range strings.Lines(string(block[1])) {
		bytesOnly, _, _ := strings.Cut(line[4:], "|") // columns: offset (four wide), bytes, meaning
		digits.WriteString(strings.Join(strings.Fields(bytesOnly), ""))
	}
	if got, want := digits.String(), fmt.Sprintf("%x", message(Binary, ops, payload)); got != want {
		t.Errorf("the worked example is\n%s\nbut the code writes\n%s", got, want)
	}
	if want := string(message(JSON, ops, payload)); !strings.Contains(string(text), want) {
		t.Errorf("docs/results.md does not show\n%s", want)
	}
}

func BenchmarkAppend(b *testing.B) {
	ops := parseList(b, "crc32c,minhash")
	payload := corpus.Text(1, 2048)
	records := [][]byte{ops[0].AppendReference(nil, payload), ops[1].AppendReference(nil, payload)}
	for _, f := range []Format{JSON, Binary, Arrow} {
		b.Run(f.String(), func(b *testing.B) {
			body := f.Append(nil, ops, len(payload), records)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				body = f.Append(body[:0], ops, len(payload), records)
			}
		})
	}
}
