package resend

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"millrace/client"
	"millrace/internal/compression"
	"millrace/internal/frame"
)

// TestHeadersComeBack shows that the new input has the original input's headers, and none of the dead letter's.
func TestHeadersComeBack(t *testing.T) {
	t.Parallel()
	m := letter(1, "too_large", "body", "X-Mine", "one", "X-Mine", "two", "x-lower", "", "Content-Type", "text/plain", "Content-Encoding", "zstd", "nats-lower", "gone",
		"Nats-Expected-Stream", "DEAD", client.HeaderInput, "Status: 409", client.HeaderInput, "status:", client.HeaderInput, "Description: a: b",
		client.HeaderInput, "Nats-Msg-Id: mine", client.HeaderInput, "with space: x", client.HeaderInput, "Status: 2")
	got, err := Reading{Framing: frame.Auto, Decompress: compression.Zstd}.newInput(m.Header, m.Data)
	want := nats.Header{
		"X-Mine": {"one", "two"}, "x-lower": {""}, "Content-Type": {"text/plain"}, "Content-Encoding": {"zstd"}, "Status": {"409", "2"}, "status": {""},
		"Description": {"a: b"}, client.HeaderInput: {"Nats-Msg-Id: mine", "with space: x"}, client.HeaderRetryOf: {"1"},
	}
	if err != nil || fmt.Sprint(got.Header) != fmt.Sprint(want) || got.Subject != "in.web" || string(got.Data) != "body" {
		t.Errorf("%v\n got %q\nwant %q\n%s %s", err, got.Header, want, got.Subject, got.Data)
	}
}

// TestARecordIsSentInItsFraming shows that a worker with the same settings splits the message into only that record.
func TestARecordIsSentInItsFraming(t *testing.T) {
	t.Parallel()
	for _, framing := range []frame.Framing{frame.None, frame.NewlineDelimited, frame.LengthDelimited, frame.VarintLengthDelimited, frame.Arrow, frame.Auto} {
		for _, encoding := range []compression.Encoding{compression.None, compression.Zstd, compression.Gzip, compression.LZ4, compression.Snappy, compression.Auto} {
			for _, record := range []string{"", "a record", strings.Repeat("long ", 1000)} {
				m := letter(1, "operator_error", record, client.HeaderRecord, "7", "X-Mine", "of the frame")
				r := Reading{Framing: framing, Column: "text", Decompress: encoding}
				got, err := r.newInput(m.Header, m.Data)
				if err != nil {
					t.Errorf("%v, %v: %v", framing, encoding, err)
					continue
				}
				if encoding == compression.Auto {
					encoding, err = compression.FromHeader(got.Header.Get("Content-Encoding"))
				}
				body := got.Data
				if err == nil && encoding != compression.None {
					body, err = new(compression.Decompressor).Append(nil, encoding, body, 1<<20)
				}
				if err != nil {
					t.Errorf("%v, %v: %v", framing, encoding, err)
					continue
				}
				var opened frame.Frame
				split := frame.Splitter{Framing: framing, MaxRecord: 1 << 20}
				if framing == frame.Arrow {
					split.Field = r.Column
				}
				if err := split.Open(&opened, got.Header.Get("Content-Type"), body); err != nil || opened.Records() != 1 || string(opened.Record(0)) != record {
					t.Errorf("%v, %v: %v, %d records", framing, encoding, err, opened.Records())
				}
				if framing != frame.Auto && len(got.Header) != 2 {
					t.Errorf("%v: the headers are %v", framing, got.Header)
				}
			}
		}
	}
	for _, record := range []string{"two\nlines", "ends in CR\r"} {
		m := letter(1, "operator_error", record, client.HeaderRecord, "7")
		if _, err := (Reading{Framing: frame.NewlineDelimited}).newInput(m.Header, m.Data); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "MILLRACE_FRAMING is newline_delimited") {
			t.Errorf("a worker would read another record; the error is %v", err)
		}
		if _, err := (Reading{Framing: frame.Auto}).newInput(m.Header, m.Data); err != nil {
			t.Error(err)
		}
	}
}

// TestARetryNamesTheFirstInput shows that the new input names the first input and its record, however often it was sent.
func TestARetryNamesTheFirstInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, record, want string }{{"", "", "1"}, {"", "7", "1:7"}, {"17", "", "17"}, {"17", "7", "17:7"}, {"17:3", "0", "17:3"}} {
		m := letter(1, "filter_error", "body")
		for name, value := range map[string]string{client.HeaderRetryOf: c.before, client.HeaderRecord: c.record} {
			if value != "" {
				m.Header.Set(name, value)
			}
		}
		got, err := Reading{Framing: frame.NewlineDelimited}.newInput(m.Header, m.Data)
		if err != nil || got.Header.Get(client.HeaderRetryOf) != c.want {
			t.Errorf("%+v: %v, %v", c, got.Header, err)
		}
	}
}

// TestAJSONRecordKeepsItsField sends the dead letter of a JSON record again. A worker with a field reads the same value.
func TestAJSONRecordKeepsItsField(t *testing.T) {
	for _, framing := range []frame.Framing{frame.NewlineDelimited, frame.LengthDelimited, frame.VarintLengthDelimited, frame.JSONArray, frame.Auto} {
		record := `{"text":"a\nb"}`
		if framing != frame.NewlineDelimited {
			record = "{\n\"text\":\"a\\nb\"}"
		}
		m := letter(1, "no_field", record, client.HeaderRecord, "7")
		m.Header.Set("Content-Type", client.TypeJSON)
		got, err := (Reading{Framing: framing}).newInput(m.Header, m.Data)
		if err != nil {
			t.Errorf("%v: %v", framing, err)
			continue
		}
		var opened frame.Frame
		split := frame.Splitter{Framing: framing, Field: "text"}
		if err := split.Open(&opened, got.Header.Get("Content-Type"), got.Data); err != nil || opened.Records() != 1 || string(opened.Record(0)) != "a\nb" {
			t.Errorf("%v: %v, %d records", framing, err, opened.Records())
		}
	}
}
