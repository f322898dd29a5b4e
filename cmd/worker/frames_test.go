package main

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/compression"
)

// TestFrameSettingsReachTheWorker publishes a compressed message of several records. The compressed result must have
// one line per record.
func TestFrameSettingsReachTheWorker(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := start(t, []string{
		"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c", "MILLRACE_FRAMING=newline_delimited",
		"MILLRACE_DECOMPRESS=auto", "MILLRACE_RESULT_ENCODING=zstd", "MILLRACE_FRAME_RECORDS=3", "MILLRACE_FRAME_BYTES=1MiB",
	}, "run")
	p.await("framing and compression")
	p.await("working")
	for _, text := range []string{"newline_delimited", "auto", "zstd", "1MiB"} {
		if !strings.Contains(p.text(), text) {
			t.Errorf("the log doesn't name %s", text)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	js := client(t, s)
	c := compression.Compressor{}
	packed := c.Append(nil, compression.LZ4, []byte("123456789\n\n123456789\n"))
	header := nats.Header{"Content-Encoding": {"lz4"}}
	for _, body := range [][]byte{packed, c.Append(nil, compression.LZ4, []byte("1\n2\n3\n4\n"))} {
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "ingest.web", Header: header, Data: body}); err != nil {
			t.Fatal(err)
		}
	}
	results, err := js.OrderedConsumer(ctx, "RESULTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"results.>"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := results.Next()
	if err != nil {
		t.Fatal(err)
	}
	if m.Headers().Get("Millrace-Records") != "3" || m.Headers().Get("Content-Encoding") != "zstd" {
		t.Errorf("the result has the headers %v", m.Headers())
	}
	d := compression.Decompressor{}
	body, err := d.Append(nil, compression.Zstd, m.Data(), 1<<20)
	const want = `{"bytes":9,"crc32c":"e3069283"}` + "\n" + `{"bytes":0,"crc32c":"00000000"}` + "\n" + `{"bytes":9,"crc32c":"e3069283"}` + "\n"
	if err != nil || string(body) != want {
		t.Errorf("the result is %q, %v; want %q", body, err, want)
	}
	p.await("more than 3 records")
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
}

func TestWrongFieldsAreRefusedTogether(t *testing.T) {
	t.Parallel()
	call(t, []string{"MILLRACE_FIELD=a..b", "MILLRACE_KEEP_FIELDS=id,id", "MILLRACE_RESULT_FORMAT=binary"}, "run").want(t, exitUsage,
		`MILLRACE_FIELD="a..b"`, `"id" is named twice`, "set MILLRACE_RESULT_FORMAT=json or arrow")
}

// TestTheDemoChecksArrowResults runs the demo with results that its client decodes as Arrow streams.
func TestTheDemoChecksArrowResults(t *testing.T) {
	t.Parallel()
	r := call(t, []string{"MILLRACE_DEBUG_ADDR=", "MILLRACE_RESULT_FORMAT=arrow"}, "demo", "--payloads", "30")
	r.want(t, exitDone)
	if last := lastLine(r.out); last != "verified 30 of 30 results" {
		t.Errorf("the last line is %q", last)
	}
}

// TestCheckReportsTheLimitsOfFrames checks that `worker check` compares the limits with the server's max_payload.
func TestCheckReportsTheLimitsOfFrames(t *testing.T) {
	t.Parallel()
	s := serve(t)
	env := []string{"MILLRACE_NATS_URL=" + s.URL(), "MILLRACE_PROVISION=true", "MILLRACE_FRAMING=newline_delimited", "MILLRACE_OPERATORS=crc32c"}
	call(t, env, "check").want(t, exitDone, "frames: up to 65536 records and 67108864 bytes per message", "comes in parts")
	call(t, append(env, "MILLRACE_FRAME_BYTES=64KiB"), "check").want(t, exitDone, "MILLRACE_FRAME_BYTES is 65536", "raise MILLRACE_FRAME_BYTES to at least")
}

// TestDemoOfFilteredDocuments runs the demo with JSON documents and a filter, in every form. The demo checks dropped documents too.
func TestDemoOfFilteredDocuments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ format, framing, compress string }{
		{"annotated", "none", "none"}, {"annotated", "newline_delimited", "zstd"}, {"json", "json_array", "none"},
		{"arrow", "length_delimited", "none"}, {"binary", "newline_delimited", "lz4"},
	} {
		t.Run(c.format+" "+c.framing, func(t *testing.T) {
			t.Parallel()
			env := []string{"MILLRACE_DEBUG_ADDR=", "MILLRACE_RESULT_FORMAT=" + c.format, "MILLRACE_OPERATORS=crc32c,quality", "MILLRACE_FILTER=quality.words >= 40 && record.bytes < 5000"}
			if c.format != "binary" {
				env = append(env, "MILLRACE_KEEP_FIELDS=id")
			}
			r := call(t, env, "demo", "--field", "text", "--payloads", "40", "--framing", c.framing, "--compress", c.compress, "--frame-records", "200")
			r.want(t, exitDone, "records left out by the filter", "verified 40 of 40 results")
		})
	}
}
