package client_test

import (
	"fmt"

	"millrace/client"
)

// ExampleDecode reads the checksums of a frame's records from a binary result.
func ExampleDecode() {
	// In a program, this is the body of a message in the result stream.
	body := []byte("MILL\x02\x00\x01\x00\x02\x00\x00\x00\x00\x00\x00\x00" + // version 2, 1 operator, 2 records
		"\x06\x00\x00\x00\x04\x00\x00\x00crc32c\x00\x00" + // spec of 6 bytes, values of 4 bytes
		"\x00\x03\x00\x00" + // statuses
		"\x83\x92\x06\xe3\x00\x00\x00\x00") // values

	result, err := client.Decode(body)
	if err != nil {
		fmt.Println(err)
		return
	}
	crc32c := result.Operator("crc32c")
	for i, record := range result.Records() {
		if sum, ok := record.Uint32(crc32c); ok {
			fmt.Printf("record %d: %08x\n", i, sum)
		} else {
			fmt.Printf("record %d: %v\n", i, record.Status)
		}
	}
	// Output:
	// record 0: e3069283
	// record 1: operator_error
}

func ExampleLines() {
	body := []byte(`{"bytes":9,"crc32c":"e3069283"}
{"bytes":70000,"error":{"reason":"too_large","message":"at most 65536 bytes"}}
`)
	for line, err := range client.Lines(body) {
		switch {
		case err != nil:
			fmt.Println(err)
		case line.Error != nil:
			fmt.Println(line.Bytes, "bytes:", line.Error)
		default:
			fmt.Println(line.Bytes, "bytes:", string(line.Values["crc32c"]))
		}
	}
	// Output:
	// 9 bytes: "e3069283"
	// 70000 bytes: too_large: at most 65536 bytes
}

// ExampleDocuments reads a result of MILLRACE_RESULT_FORMAT=annotated.
func ExampleDocuments() {
	header := map[string][]string{client.HeaderAnnotation: {"millrace"}}
	body := []byte(`{"id":"a1","text":"123456789","millrace":{"record":4,"bytes":9,"crc32c":"e3069283"}}` + "\n")

	for d, err := range client.Documents(body, header[client.HeaderAnnotation][0]) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("document", *d.Line.Record, "of the input:", string(d.JSON))
		fmt.Println("crc32c:", string(d.Line.Values["crc32c"]))
	}
	// Output:
	// document 4 of the input: {"id":"a1","text":"123456789","millrace":{"record":4,"bytes":9,"crc32c":"e3069283"}}
	// crc32c: "e3069283"
}

// ExampleAppendLength puts two records in one message. The header Content-Type is client.TypeLength.
func ExampleAppendLength() {
	var frame []byte
	for _, record := range []string{"first", "second\nwith two lines"} {
		var err error
		if frame, err = client.AppendLength(frame, []byte(record)); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Printf("%q\n", frame)
	// Output:
	// "\x00\x00\x00\x05first\x00\x00\x00\x15second\nwith two lines"
}

func ExampleInputOf() {
	for _, header := range []map[string][]string{
		{client.HeaderStream: {"INGEST"}, client.HeaderSequence: {"7"}, client.HeaderOperators: {"crc32c"}}, // headers of a result
		{"Nats-Expected-Last-Subject-Sequence": {"12"}},                                                     // headers of a commit marker
	} {
		if in, ok := client.InputOf(header); ok {
			fmt.Println("input", in.Sequence, "of", in.Stream)
		} else {
			fmt.Println("neither a result nor a dead letter")
		}
	}
	// Output:
	// input 7 of INGEST
	// neither a result nor a dead letter
}

func ExampleParsePart() {
	part, err := client.ParsePart("2/3") // value of client.HeaderPart
	fmt.Println(part.Index, "of", part.Count, err)
	// Output:
	// 2 of 3 <nil>
}

// ExampleCollector joins the parts of a result.
func ExampleCollector() {
	var results client.Collector[[]byte] // in a program: messages of your NATS client
	for _, part := range []struct {
		header map[string][]string
		body   []byte
	}{
		{map[string][]string{client.HeaderStream: {"INGEST"}, client.HeaderSequence: {"7"},
			client.HeaderPart: {"1/2"}, client.HeaderFirstRecord: {"0"}, client.HeaderCut: {"5f1d"}}, []byte(`{"bytes":1}` + "\n")},
		{map[string][]string{client.HeaderStream: {"INGEST"}, client.HeaderSequence: {"7"},
			client.HeaderPart: {"2/2"}, client.HeaderFirstRecord: {"1"}, client.HeaderCut: {"5f1d"}}, []byte(`{"bytes":2}` + "\n")},
	} {
		result, err := results.Add(part.header, part.body)
		if err != nil {
			fmt.Println(err)
		}
		for _, body := range result {
			fmt.Printf("%s", body)
		}
	}
	// Output:
	// {"bytes":1}
	// {"bytes":2}
}
