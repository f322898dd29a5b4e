package client_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"millrace/client"
)

// textExample returns a frame's result. Of its three operators, only the middle one has byte strings.
func textExample() []byte {
	return version2(3, []client.Status{client.OK, client.OperatorError, client.OK, client.OK},
		column{spec: "crc32c", stride: 4, values: [][]byte{{1, 2, 3, 4}, nil, {5, 6, 7, 8}, {9}}},
		column{spec: "text?n=1", stride: 4, values: [][]byte{{5, 0, 0, 0}, nil, nil, {2, 0, 0, 0}}, strings: [][]byte{[]byte("first"), nil, nil, {0xff, 0}}},
		column{spec: "odd", stride: 3, values: [][]byte{{1, 2, 3}, nil, {4, 5, 6}, {0, 0, 1}}},
	)
}

func textSingle() []byte {
	return version1(9, column{spec: "text", stride: 4, values: [][]byte{{3, 0, 0, 0}}, strings: [][]byte{[]byte("one")}},
		column{spec: "crc32c", stride: 4, values: [][]byte{{1, 2, 3, 4}}})
}

func TestByteStringsOfAResult(t *testing.T) {
	r, err := client.Decode(textExample())
	if err != nil {
		t.Fatal(err)
	}
	if !r.Operators[1].ByteStrings || r.Operators[1].Stride != 4 || r.Operators[0].ByteStrings || r.Operators[2].ByteStrings {
		t.Errorf("operators %+v", r.Operators)
	}
	for i, want := range []string{"first", "", "", "\xff\x00"} {
		if got := r.Record(i).Strings(1); string(got) != want || i == 1 && got != nil || r.Record(i).Strings(0) != nil {
			t.Errorf("record %d: %q, want %q", i, got, want)
		}
	}
	if got := r.Record(2).Value(2); !bytes.Equal(got, []byte{4, 5, 6}) {
		t.Errorf("the operator after it has %v", got)
	}
	single, err := client.Decode(textSingle())
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := single.Record(0).Uint32(0); got != 3 || string(single.Record(0).Strings(0)) != "one" {
		t.Errorf("length %d, %q", got, single.Record(0).Strings(0))
	}
}

func TestByteStringsThatContradictThemselves(t *testing.T) {
	body := textExample()
	at := bytes.Index(body, []byte("first")) - 20 // start of the positions
	if got := binary.LittleEndian.Uint32(body[at+16:]); got != 7 {
		t.Fatalf("the last position is %d", got)
	}
	for _, c := range []struct {
		at    int
		value uint32
		want  string
	}{
		{0, 1, "begin with 1"},
		{8, 6, "record 1 is operator_error, but has byte strings"},
		{12, 4, "record 2: its byte strings begin at 5 and end at 4"},
		{16, 1 << 30, "byte strings: truncated"},
		{16, 4, "record 3: its byte strings begin at 5"},
	} {
		changed := bytes.Clone(body)
		binary.LittleEndian.PutUint32(changed[at+c.at:], c.value)
		if _, err := client.Decode(changed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("position %d is %d: error %v, want %q", c.at/4, c.value, err, c.want)
		}
	}
}

func TestByteStringsInJSON(t *testing.T) {
	for text, want := range map[string]string{`"abc"`: "abc", `"\u00e9\n"`: "é\n", `""`: "", `{"base64":"//4="}`: "\xff\xfe", `{"base64":""}`: ""} {
		var got client.ByteString
		if err := json.Unmarshal([]byte(text), &got); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{`5`, `{}`, `{"base64":"x"}`, `{"base64":"AA==","more":""}`, `{"base64":7}`, `["a"]`, `{"base64":"AB=="}`} {
		var got client.ByteString
		if err := json.Unmarshal([]byte(text), &got); err == nil {
			t.Errorf("%s is read as %q", text, got)
		}
	}
}

// FuzzByteString checks that no JSON value makes UnmarshalJSON panic, and that it decodes valid text unchanged.
func FuzzByteString(f *testing.F) {
	for _, text := range []string{`"abc"`, `{"base64":"//4="}`, `null`, `{"base64":"="}`, "abc"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got client.ByteString
		_ = got.UnmarshalJSON([]byte(text)) // the text may be invalid
		quoted, err := json.Marshal(text)
		if err != nil || !utf8.ValidString(text) {
			return
		}
		if err := json.Unmarshal(quoted, &got); err != nil || string(got) != text {
			t.Fatalf("%q is read as %q, %v", text, got, err)
		}
	})
}
