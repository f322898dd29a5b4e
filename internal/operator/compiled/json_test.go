package compiled_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace/internal/operator/compiled"
)

// crc32c and minhash are the built-in operators.
var crc32c, minhash = compiled.BuiltIn()[0], compiled.BuiltIn()[1]

// TestResultsOfOperatorsWithoutReasonsAreRecordsAlone: the results contain only records, because the operators declare no
// reason and no byte string.
func TestResultsOfOperatorsWithoutReasonsAreRecordsAlone(t *testing.T) {
	for _, d := range []*compiled.Description{crc32c, minhash} {
		o, err := d.Bind("")
		if err != nil {
			t.Fatal(err)
		}
		if got, end := o.Layout(3, 100), 3*o.Stride(); o.HasStatuses() || got != (compiled.Layout{Status: end, Strings: end, End: end}) {
			t.Errorf("%s: statuses %t, layout %+v, want %d bytes", d.Name, o.HasStatuses(), got, end)
		}
		result := bytes.Repeat([]byte{7}, 3*o.Stride())
		if err := o.Check([]uint32{0, 1, 2, 3}, result); err != nil || o.Status(result, 3, 1) != 0 {
			t.Errorf("%s: %v, status %d", d.Name, err, o.Status(result, 3, 1))
		}
	}
}

// TestLayoutOfHostCode: host code that declares a reason writes a status per record. Without a reason, byte strings
// follow the records directly.
func TestLayoutOfHostCode(t *testing.T) {
	number := compiled.Field{Name: "n", Type: compiled.Uint32, Count: 1, CountParameter: -1}
	text := compiled.Field{Name: "text", Type: compiled.Bytes, Count: 1, CountParameter: -1, MaxBytes: 5}
	for _, c := range []struct {
		fields  []compiled.Field
		reasons []string
		want    compiled.Layout
	}{
		{[]compiled.Field{number}, nil, compiled.Layout{Status: 400, Strings: 400, End: 400}},
		{[]compiled.Field{number}, []string{"no"}, compiled.Layout{Status: 512, Strings: 768, End: 768}},
		{[]compiled.Field{text}, nil, compiled.Layout{Status: 512, Strings: 512, End: 1012}},
		{[]compiled.Field{text}, []string{"no"}, compiled.Layout{Status: 512, Strings: 768, End: 1268}},
	} {
		o, err := (&compiled.Description{Name: "host", Version: 1, Form: compiled.Library, Fields: c.fields, Reasons: c.reasons}).Bind("")
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Layout(100, 1000); got != c.want || o.HasStatuses() != (c.reasons != nil) {
			t.Errorf("%v, %q: %+v, statuses %t, want %+v", c.fields[0].Type, c.reasons, got, o.HasStatuses(), c.want)
		}
		offsets, result := make([]uint32, 101), make([]byte, c.want.End)
		if c.reasons == nil {
			continue
		}
		result[c.want.Status+7] = 1
		if err := o.Check(offsets, result); err != nil || o.Status(result, 100, 7) != 1 || o.Status(result, 100, 8) != 0 {
			t.Errorf("statuses %d and %d: %v", o.Status(result, 100, 7), o.Status(result, 100, 8), err)
		}
		result[c.want.Status+7] = 2
		if err := o.Check(offsets, result); err == nil || !strings.Contains(err.Error(), "record 7 has an undeclared result: status 2") {
			t.Errorf("an undeclared status: %v", err)
		}
	}
}

func TestWrongParametersAreNamed(t *testing.T) {
	for query, want := range map[string]string{
		"k=0":        `operator "minhash": parameter "k" is "0": give a whole number from 1 to 256`,
		"k=2&k=3":    `operator "minhash": parameter "k" is given twice`,
		"q=1":        `operator "minhash": unknown parameter "q": known are k, hashes, seed`,
		"hashes":     `operator "minhash": parameter "hashes" is "": give a whole number from 1 to 1024`,
		"k=x&seed=-": "operator \"minhash\": parameter \"k\" is \"x\": give a whole number from 1 to 256\nparameter \"seed\" is \"-\": give a whole number from 0 to 4294967295",
	} {
		if _, err := minhash.Bind(query); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", query, err, want)
		}
	}
	if _, err := crc32c.Bind("k=1"); err == nil || !strings.Contains(err.Error(), "takes no parameters") {
		t.Errorf("crc32c?k=1: error %v", err)
	}
}

// TestOptionalFields: a result contains an optional field if the field's parameter is true. Otherwise, the result is as if the
// field weren't declared.
func TestOptionalFields(t *testing.T) {
	d := &compiled.Description{
		Name: "optional", Version: 1, Form: compiled.Thread, Threads: 64, Teams: 64,
		Parameters: []compiled.Parameter{{Name: "long", Type: compiled.Bool, Max: 1}, {Name: "named", Type: compiled.Bool, Shown: true, Default: 1, Max: 1}},
		Fields: []compiled.Field{
			{Name: "a", Type: compiled.Uint8, Count: 1, CountParameter: -1}, {Name: "b", Type: compiled.Uint64, CountParameter: 0},
			{Name: "text", Type: compiled.Bytes, CountParameter: 1, MaxBytes: 9}, {Name: "c", Type: compiled.Uint16, CountParameter: 0},
		},
	}
	value := func(o *compiled.Operator, text string) []byte {
		record := make([]byte, o.Stride())
		for i, f := range o.Fields() {
			at, count := o.Place(i)
			record[at] = byte(i + 1)
			if f.Type == compiled.Bytes {
				record[at] = byte(len(text))
			}
			if count != 1 {
				t.Errorf("%s has %d elements", f.Name, count)
			}
		}
		return append(record, text...)
	}
	for query, want := range map[string]struct{ json, spec, text string }{
		"":                      {`{"named":true,"a":1,"text":"hi"}`, "optional?long=false&named=true", "hi"},
		"long=true":             {`{"named":true,"a":1,"b":2,"text":"hi","c":4}`, "optional?long=true&named=true", "hi"},
		"long=true&named=false": {`{"named":false,"a":1,"b":2,"c":3}`, "optional?long=true&named=false", ""},
		"named=false":           {`{"named":false,"a":1}`, "optional?long=false&named=false", ""},
	} {
		o, err := d.Bind(query)
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.BindBlock(o.Params())
		if err != nil || o.String() != want.spec || again.String() != want.spec {
			t.Errorf("%s: specs %s and %v, %v, want %s", query, o, again, err, want.spec)
		}
		got := string(o.AppendJSON(nil, value(o, want.text)))
		if got != want.json || o.HasStrings() != (want.text != "") || o.MaxJSON(0) < len(got) {
			t.Errorf("%s: %s with strings: %v, want %s", query, got, o.HasStrings(), want.json)
		}
		if want.text != "" && string(o.Text(len(o.Fields())-1-strings.Count(query, "long"), value(o, want.text))) != want.text {
			t.Errorf("%s: the byte string isn't %s", query, want.text)
		}
	}
	if _, err := d.BindBlock([]byte{0, 2}); err == nil || !strings.Contains(err.Error(), `parameter "named" is 2: give false to true`) {
		t.Errorf("a block with 2: %v", err)
	}
	if _, err := d.Bind("long=1"); err == nil || !strings.Contains(err.Error(), `parameter "long" is "1": give true or false`) {
		t.Errorf("long=1: %v", err)
	}
	const declaration = "optional version 1, thread per record, long=false (bool), named=true (bool) shown, a uint8, b uint64 if long, text bytes if named, c uint16 if long"
	if got := d.Declaration(); got != declaration {
		t.Errorf("declaration %s", got)
	}
}

func one(t *testing.T, f compiled.Field) *compiled.Operator {
	t.Helper()
	f.Name, f.CountParameter = "v", -1
	o, err := (&compiled.Description{Name: "one", Version: 1, Form: compiled.Thread, Threads: 64, Teams: 64, Fields: []compiled.Field{f}}).Bind("")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestJSONOfEachType(t *testing.T) {
	float32s := func(values ...float32) []byte {
		b, _ := binary.Append(nil, binary.LittleEndian, values)
		return b
	}
	float64s := func(values ...float64) []byte {
		b, _ := binary.Append(nil, binary.LittleEndian, values)
		return b
	}
	infinity := math.Inf(1)
	for _, test := range []struct {
		field  compiled.Field
		record []byte
		want   string
	}{
		{compiled.Field{Type: compiled.Uint8, Count: 1}, []byte{255}, `{"v":255}`},
		{compiled.Field{Type: compiled.Int8, Count: 1}, []byte{255}, `{"v":-1}`},
		{compiled.Field{Type: compiled.Int16, Count: 1}, []byte{0, 128}, `{"v":-32768}`},
		{compiled.Field{Type: compiled.Uint16, Count: 1}, []byte{1, 2}, `{"v":513}`},
		{compiled.Field{Type: compiled.Int32, Count: 1}, []byte{254, 255, 255, 255}, `{"v":-2}`},
		{compiled.Field{Type: compiled.Int64, Count: 1}, []byte{0, 0, 0, 0, 0, 0, 0, 128}, `{"v":-9223372036854775808}`},
		{compiled.Field{Type: compiled.Uint64, Count: 1}, bytes.Repeat([]byte{255}, 8), `{"v":18446744073709551615}`},
		{compiled.Field{Type: compiled.Uint8, Array: true, Count: 3}, []byte{1, 2, 3}, `{"v":[1,2,3]}`},
		{compiled.Field{Type: compiled.Uint8, Array: true, Count: 3, Hex: true}, []byte{1, 2, 0xab}, `{"v":"0102ab"}`},
		{compiled.Field{Type: compiled.Uint16, Array: true, Count: 2, Hex: true}, []byte{1, 2, 3, 4}, `{"v":["0201","0403"]}`},
		{compiled.Field{Type: compiled.Uint64, Count: 1, Hex: true, BareJSON: true}, []byte{1, 2, 3, 4, 5, 6, 7, 8}, `"0807060504030201"`},
		{compiled.Field{Type: compiled.Float32, Array: true, Count: 4}, float32s(0.1, -1.5, 1e-7, 3e30), `{"v":[0.1,-1.5,1e-07,3e+30]}`},
		{compiled.Field{Type: compiled.Float64, Array: true, Count: 4}, float64s(0.1, infinity, math.NaN(), -infinity), `{"v":[0.1,null,null,null]}`},
		{compiled.Field{Type: compiled.Float64, Count: 1}, float64s(0), `{"v":0}`},
	} {
		o := one(t, test.field)
		if got := string(o.AppendJSON(nil, test.record)); got != test.want {
			t.Errorf("%v: %s, want %s", test.field.Type, got, test.want)
		}
		if maximum := o.MaxJSON(0); maximum < len(test.want) {
			t.Errorf("%v: MaxJSON is %d, and a value has %d bytes", test.field.Type, maximum, len(test.want))
		}
	}
}

// TestMaxJSONBoundsFloats: MaxJSON bounds the longest texts of floats.
func TestMaxJSONBoundsFloats(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	single, double := one(t, compiled.Field{Type: compiled.Float32, Count: 1}), one(t, compiled.Field{Type: compiled.Float64, Count: 1})
	for range 200_000 {
		bits := random.Uint64()
		record := binary.LittleEndian.AppendUint64(nil, bits)
		if random.IntN(2) == 0 { // numbers with many digits before the point or zeros after it
			value := (random.Float64() - 0.5) * math.Pow(10, float64(random.IntN(30)-8))
			record = binary.LittleEndian.AppendUint64(nil, math.Float64bits(value))
			narrow := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(value)))
			record = append(record, narrow...)
		} else {
			record = append(record, record[:4]...)
		}
		for o, part := range map[*compiled.Operator][]byte{double: record[:8], single: record[8:]} {
			text := o.AppendJSON(nil, part)
			if len(text) > o.MaxJSON(0) {
				t.Fatalf("%s has %d bytes, and MaxJSON is %d", text, len(text), o.MaxJSON(0))
			}
			if !json.Valid(text) {
				t.Fatalf("%s isn't JSON", text)
			}
		}
	}
}

// TestByteStrings: a record contains the lengths of its byte strings. The contents are stored separately.
func TestByteStrings(t *testing.T) {
	d := &compiled.Description{Name: "strings", Version: 1, Form: compiled.Thread, Threads: 64, Teams: 64, Fields: []compiled.Field{
		{Name: "a", Type: compiled.Bytes, Count: 1, CountParameter: -1, MaxBytes: 4},
		{Name: "n", Type: compiled.Uint8, Count: 1, CountParameter: -1},
		{Name: "b", Type: compiled.Bytes, Count: 1, CountParameter: -1, Hex: true, MaxPerByte: 1},
	}}
	o, err := d.Bind("")
	if err != nil {
		t.Fatal(err)
	}
	value := func(a, b string) []byte {
		return slices.Concat([]byte{byte(len(a)), 0, 0, 0, 9, 0, 0, 0}, []byte{byte(len(b)), 0, 0, 0}, []byte(a+b))
	}
	for _, test := range []struct{ a, b, want string }{
		{"\xff\xfeab", "hi", `{"a":{"base64":"//5hYg=="},"n":9,"b":"6869"}`},
		{"", "", `{"a":"","n":9,"b":""}`},
		{"\xc3\xa9\"\\", "\x00", `{"a":"é\"\\","n":9,"b":"00"}`},
		{"\t\n\r/", "", `{"a":"\t\n\r/","n":9,"b":""}`},
		{"a\x00", "", `{"a":{"base64":"YQA="},"n":9,"b":""}`},
		{"\x7f", "", `{"a":{"base64":"fw=="},"n":9,"b":""}`},
	} {
		got := o.AppendJSON(nil, value(test.a, test.b))
		if string(got) != test.want || !json.Valid(got) {
			t.Errorf("%s, want %s", got, test.want)
		}
		if maximum := o.MaxJSON(len(test.b)); maximum < len(got) {
			t.Errorf("MaxJSON is %d, and %s has %d bytes", maximum, got, len(got))
		}
	}
	if got := string(o.AppendJSON(nil, value("abcd", "xy")[:o.Stride()+3])); got != `{"a":"abc","n":9,"b":""}` {
		t.Errorf("a truncated value is %s", got)
	}
}

func TestReasons(t *testing.T) {
	d := *crc32c
	d.Reasons = []string{"the record is empty"}
	o, err := d.Bind("")
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[byte]string{1: "the record is empty", 254: "outside", 255: "failed"} {
		if text, ok := o.Reason(status); !ok || !strings.Contains(text, want) {
			t.Errorf("status %d: %q, %t", status, text, ok)
		}
	}
	for _, status := range []byte{0, 2, 253} {
		if text, ok := o.Reason(status); ok {
			t.Errorf("status %d has the reason %q", status, text)
		}
	}
}

func TestAppendJSONAllocatesNothing(t *testing.T) {
	for d, query := range map[*compiled.Description]string{crc32c: "", minhash: "k=200&seed=4294967295"} {
		o, err := d.Bind(query)
		if err != nil {
			t.Fatal(err)
		}
		record, dst := make([]byte, o.Stride()), make([]byte, 0, o.MaxJSON(0))
		if n := testing.AllocsPerRun(100, func() { dst = o.AppendJSON(dst[:0], record) }); n != 0 {
			t.Errorf("%s: %v allocations per record", o, n)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	for _, d := range compiled.BuiltIn() {
		o, err := d.Bind("")
		if err != nil {
			b.Fatal(err)
		}
		record := make([]byte, o.Stride())
		for i := range record {
			record[i] = byte(i * 37)
		}
		dst := make([]byte, 0, o.MaxJSON(0))
		b.Run(d.Name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(o.AppendJSON(dst, record))))
			for b.Loop() {
				o.AppendJSON(dst, record)
			}
		})
	}
}

func Example() {
	d := compiled.Description{
		Name: "entropy", Version: 1,
		Parameters: []compiled.Parameter{{Name: "bits", Type: compiled.Uint32, Default: 4, Min: 1, Max: 6}},
		Fields:     []compiled.Field{{Name: "peak", Type: compiled.Uint32, Count: 1, CountParameter: -1}},
	}
	o, err := d.Bind("bits=5")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(o, o.Stride(), string(o.AppendJSON(nil, []byte{17, 0, 0, 0})))
	// Output: entropy?bits=5 4 {"peak":17}
}
