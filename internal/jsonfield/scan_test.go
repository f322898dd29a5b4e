package jsonfield_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"millrace/internal/jsonfield"
)

func selector(t testing.TB, paths ...string) *jsonfield.Selector {
	t.Helper()
	s, err := jsonfield.NewSelector(paths)
	if err != nil {
		t.Fatal(err)
	}
	return &s
}

// text returns the JSON text of each path's value. Absent values are empty.
func texts(record string, m *jsonfield.Match) (values []string) {
	for _, v := range m.Values {
		values = append(values, record[v.Start:v.End])
	}
	return values
}

func TestScanFindsMembers(t *testing.T) {
	for _, c := range []struct{ record, path, want string }{
		{`{"text":"a"}`, "text", `"a"`},
		{` { "text" : "a" } `, "text", `"a"`},
		{`{"id":1,"text":"a\"b","n":null}`, "text", `"a\"b"`},
		{`{"te\u0078t":"a"}`, "text", `"a"`},
		{`{"t\"":"a"}`, `t"`, `"a"`},
		{`{"text":"a","text":"b"}`, "text", `"b"`},
		{`{"text":"a","text":1}`, "text", `1`},
		{`{"text":{"a":[1,{"text":2}]}}`, "text", `{"a":[1,{"text":2}]}`},
		{`{"text":[ ]}`, "text", `[ ]`},
		{`{"text":-1.5e+3}`, "text", `-1.5e+3`},
		{`{"text":true,"x":false}`, "x", `false`},
		{`{"a":{"text":"b"}}`, "text", ""},
		{`["text","a"]`, "text", ""},
		{`[{"text":"a"}]`, "text", ""},
		{`"text"`, "text", ""},
		{`{}`, "text", ""},
		{`{"doc":{"body":"a"}}`, "doc.body", `"a"`},
		{`{"doc":{"body":{"text":"a"}}}`, "doc.body.text", `"a"`},
		{`{"doc":{"x":{"body":"a"}}}`, "doc.body", ""},
		{`{"doc":[{"body":"a"}]}`, "doc.body", ""},
		{`{"doc":{"body":"a"},"doc":{}}`, "doc.body", ""},
		{`{"doc":{"body":"a"},"doc":{"body":"b"}}`, "doc.body", `"b"`},
		{`{"doc":{"body":"a"},"doc":"b"}`, "doc.body", ""},
		{`{"doc":{"body":"a","body":"b"},"other":{"body":"c"}}`, "doc.body", `"b"`},
		{`{"doc.body":"a","doc":{"body":"b"}}`, "doc.body", `"a"`},
		{`{"doc":{"body":"b"},"doc.body":"a"}`, "doc.body", `"a"`},
		{`{"doc":{"doc.body":"b"}}`, "doc.body", ""},
		{`{"":{"":1},"é":"ü"}`, "é", `"ü"`},
	} {
		var m jsonfield.Match
		if fault := selector(t, c.path).Scan([]byte(c.record), &m); !fault.IsZero() {
			t.Errorf("%s: %v", c.record, fault)
		} else if got := texts(c.record, &m)[0]; got != c.want {
			t.Errorf("%s in %s is %q, want %q", c.path, c.record, got, c.want)
		}
		if want := strings.TrimSpace(c.record)[0] == '{'; m.Object != want {
			t.Errorf("%s: Object is %t", c.record, m.Object)
		}
	}
}

func TestScanFindsSeveralMembers(t *testing.T) {
	s := selector(t, "text", "meta.id", "meta", "gone")
	var m jsonfield.Match
	const record = `{"meta":{"id":7},"text":"a"}`
	for range 2 {
		if fault := s.Scan([]byte(record), &m); !fault.IsZero() {
			t.Fatal(fault)
		}
		if got := strings.Join(texts(record, &m), "|"); got != `"a"|7|{"id":7}|` {
			t.Errorf("the values are %s", got)
		}
	}
}

func TestScanReportsTheFirstFault(t *testing.T) {
	long := strings.Repeat("0123456789", 5)
	for _, c := range []struct {
		record string
		offset int
		text   string
	}{
		{``, 0, "ends too early"},
		{`  `, 2, "ends too early"},
		{`{`, 1, "ends too early"},
		{`{"a"`, 4, "ends too early"},
		{`{"a":`, 5, "ends too early"},
		{`{"a":1`, 6, "ends too early"},
		{`{"a":1,`, 7, "ends too early"},
		{`{"a":1,}`, 7, "name of a member"},
		{`{a:1}`, 1, "name of a member"},
		{`{"a" 1}`, 5, "colon"},
		{`{"a":1 "b":2}`, 7, "comma or }"},
		{`[1 2]`, 3, "comma or ]"},
		{`[1,]`, 3, "no JSON value"},
		{`{} x`, 3, "text follows"},
		{`{}{}`, 2, "text follows"},
		{`nul`, 0, "no JSON value"},
		{`01`, 1, "text follows"},
		{`-`, 1, "digit"},
		{`1.`, 2, "digit"},
		{`1.e1`, 2, "digit"},
		{`1e+`, 3, "digit"},
		{`+1`, 0, "no JSON value"},
		{`"` + long, 51, "within a string"},
		{`"` + long + "\n\"", 51, "control character"},
		{`"` + long + `\x"`, 51, "escape"},
		{`"\u12g4"`, 1, "escape"},
		{`"\u12`, 1, "escape"},
		{`"\`, 1, "escape"},
		{`"` + long + "\xff" + `"`, 51, "UTF-8"},
		{`{"a":"` + long + "\xed\xa0\x80" + `"}`, 56, "UTF-8"},
		{"\"é\xc3\"", 3, "UTF-8"},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), 64, "deeper than 64"},
		{strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), 64 * 5, "deeper than 64"},
		{"\ufeff{}", 0, "no JSON value"},
	} {
		var m jsonfield.Match
		fault := selector(t, "a").Scan([]byte(c.record), &m)
		if fault.Offset != c.offset || !strings.Contains(fault.Text, c.text) {
			t.Errorf("%q: %v, want %q at byte %d", c.record, fault, c.text, c.offset)
		}
	}
}

func TestSixtyFourLevelsAreAllowed(t *testing.T) {
	var m jsonfield.Match
	record := strings.Repeat(`{"a":`, 64) + `1` + strings.Repeat("}", 64)
	if fault := selector(t, strings.Repeat("a.", 63)+"a").Scan([]byte(record), &m); !fault.IsZero() {
		t.Fatal(fault)
	}
	if got := texts(record, &m)[0]; got != "1" {
		t.Errorf("the value is %q", got)
	}
}

func TestAppendUnescapes(t *testing.T) {
	for content, want := range map[string]string{
		``: "", `abc`: "abc", `\"\\\/\b\f\n\r\t`: "\"\\/\b\f\n\r\t", `a\u00e9b`: "aéb", `\u20ac`: "€", `\ud83d\ude00!`: "😀!", `\uD83D\uDE00`: "😀",
		`\ud83d`: "\ufffd", `\ude00`: "\ufffd", `\ud83dx`: "\ufffdx", `\ud83d\u0041`: "\ufffdA", `\ud83d\ud83d\ude00`: "\ufffd😀", `\ud83d\n`: "\ufffd\n", `\u0000`: "\x00",
	} {
		if got := string(jsonfield.Append([]byte("+"), []byte(content))); got != "+"+want {
			t.Errorf("%s is %q, want %q", content, got, want)
		}
	}
}

func TestWrongPathsAreRefused(t *testing.T) {
	for _, path := range []string{"", ".", "a.", ".a", "a..b", strings.Repeat("a.", 64) + "a"} {
		if _, err := jsonfield.NewSelector([]string{path}); err == nil {
			t.Errorf("%q was accepted as a path", path)
		}
	}
	if _, err := jsonfield.NewSelector(make([]string, jsonfield.MaxPaths+1)); err == nil {
		t.Error("too many paths were accepted")
	}
}

func TestAScanAllocatesNothing(t *testing.T) {
	s, record := selector(t, "te\"xt", "a.b", "id"), []byte(`{"id":[1,2,{"x":"y"}],"te\"xt":"abc\n","a":{"b":"é"}}`)
	var m jsonfield.Match
	var value []byte
	allocations := testing.AllocsPerRun(100, func() {
		if fault := s.Scan(record, &m); !fault.IsZero() {
			t.Fatal(fault)
		}
		v := m.Values[0]
		value = jsonfield.Append(value[:0], record[v.Start+1:v.End-1])
	})
	if allocations != 0 || string(value) != "abc\n" {
		t.Errorf("%v allocations for %q", allocations, value)
	}
}

// FuzzScan compares the values of members, and the decision to accept a record, with encoding/json. They differ only for strings
// that aren't valid UTF-8, and for values that nest deeper than MaxDepth.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{"text":"a\u00e9\ud83d\ude00\ud83d","id":[1,-2.5e3,true,null]}`, `{"a":{"b":"x"},"a":{}}`, `{"a.b":"x","a":{"b":{"text":"y"}}}`,
		`[[[]]]`, ` {"text" : "` + strings.Repeat("abcdefgh", 4) + `\n" , "a":{ "b" : 1 } } `, "{\"text\":\"\xff\"}", strings.Repeat("[", 65) + strings.Repeat("]", 65),
	} {
		f.Add([]byte(seed))
	}
	s := selector(f, "text", "a.b", "id")
	f.Fuzz(func(t *testing.T, record []byte) {
		var m jsonfield.Match
		fault := s.Scan(record, &m)
		valid := json.Valid(record)
		switch {
		case !valid && (fault.IsZero() || fault.Soft && isSound(record)):
			t.Fatalf("Scan(%q) = %+v, but encoding/json rejects it", record, fault)
		case valid && !fault.IsZero() && !fault.Soft:
			t.Fatalf("Scan(%q) = %v, but encoding/json accepts it", record, fault)
		case fault.Soft && isSound(record):
			t.Fatalf("Scan(%q) = %v", record, fault)
		case fault.Offset > len(record):
			t.Fatalf("Scan(%q) = %+v", record, fault)
		case !fault.IsZero():
			return
		}
		var object map[string]any
		if err := json.Unmarshal(record, &object); (err == nil && object != nil) != m.Object {
			t.Fatalf("Object is %t for %q", m.Object, record)
		}
		b, inner := object["a.b"], object["a"]
		if nested, ok := inner.(map[string]any); b == nil && ok {
			b = nested["b"]
		}
		if _, ok := object["a.b"]; !ok || object["a.b"] != nil {
			wantValue(t, record, m.Values[1], b)
		}
		wantValue(t, record, m.Values[0], object["text"])
		wantValue(t, record, m.Values[2], object["id"])
	})
}

// isSound reports whether text is valid UTF-8 and has few brackets, so that it has no soft fault.
func isSound(text []byte) bool {
	return utf8.Valid(text) && strings.Count(string(text), "[")+strings.Count(string(text), "{") <= jsonfield.MaxDepth
}

// wantValue compares the value at span with the value that encoding/json has decoded. nil is null or absent.
func wantValue(t *testing.T, record []byte, span jsonfield.Span, want any) {
	t.Helper()
	if span.IsAbsent() {
		if want != nil {
			t.Fatalf("a value of %q is absent, want %v", record, want)
		}
		return
	}
	value := record[span.Start:span.End]
	if text, ok := want.(string); ok != jsonfield.IsString(value) {
		t.Fatalf("a value of %q is %q, want %v", record, value, want)
	} else if ok {
		if got := string(jsonfield.Append(nil, value[1:len(value)-1])); got != text || len(got) > len(value)-2 {
			t.Fatalf("a value of %q is %q, want %q", record, got, text)
		}
		return
	}
	var got any
	if err := json.Unmarshal(value, &got); err != nil {
		t.Fatal(err)
	}
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	if errA != nil || errB != nil || string(a) != string(b) {
		t.Fatalf("a value of %q is %s, want %s", record, a, b)
	}
}
