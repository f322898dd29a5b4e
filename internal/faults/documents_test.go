package faults

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"millrace/internal/compression"
)

// document is a record that a filter decides about.
type document struct {
	line   string
	bytes  int    // length of the text
	reason string // reason of the dead letter with every filter; empty if there is none
}

// expensiveTags is the number of tags that makes the filters exceed the cost limit.
const expensiveTags = 400

// strangeDocuments lists the kinds of documents that aren't plain. share is the number of such documents in 10,000. n is the number of the document.
var strangeDocuments = []struct {
	share int
	make  func(n int) document
}{
	{1, func(n int) document { return document{line: fmt.Sprintf(`{"n":%d}`, n), reason: "no_field"} }},
	{40, func(n int) document {
		return document{line: fmt.Sprintf(`{"n":%d,"text":"a" "b"}`, n), reason: "invalid_json"}
	}},
	{20, func(n int) document { return nested(n, 64, "") }},
	{10, func(n int) document { return nested(n, 65, "invalid_json") }},
	{1, func(n int) document { return nested(n, 100_000, "invalid_json") }},
	{100, func(n int) document { return tagged(n, 10, "") }},
	{10, func(n int) document { return tagged(n, expensiveTags, "filter_error") }},
	{40, func(n int) document { return plain(n, failingBytes, "filter_error") }},
}

// plain returns a document with a text of the given length.
func plain(n, length int, reason string) document {
	return document{line: fmt.Sprintf(`{"n":%d,"text":"%s"}`, n, strings.Repeat("x", length)), bytes: length, reason: reason}
}

// nested returns a document with the given number of levels, of which the document itself is one.
func nested(n, levels int, reason string) document {
	const text = "a text that is long enough for the first filter"
	deep := strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1)
	return document{line: fmt.Sprintf(`{"n":%d,"deep":%s,"text":"%s"}`, n, deep, text), bytes: len(text), reason: reason}
}

// tagged returns a document with the given number of tags, and a text that both filters keep.
func tagged(n, tags int, reason string) document {
	const length = 150
	var list []string
	for tag := range tags {
		list = append(list, strconv.Itoa(tag))
	}
	return document{line: fmt.Sprintf(`{"tags":[%s],"n":%d,"text":"%s"}`, strings.Join(list, ","), n, strings.Repeat("x", length)), bytes: length, reason: reason}
}

// largeEvery is the number of frames per large document. The large document is in the middle of its frame.
const largeEvery = 1000

// largeBytes returns the length of a large document's text, and the size of the workers' batches, in bytes.
func largeBytes() (text, batch int) { return times(60<<20, 6<<20), times(64<<20, 8<<20) }

func hasLarge(i int) bool { return i%largeEvery == largeEvery/2 }

// documents returns the records of the i-th frame.
func (r *rig) documents(i int) []document {
	rng := rand.New(rand.NewPCG(r.seed, uint64(i)))
	all := make([]document, rng.IntN(90))
	for k := range all {
		all[k] = anyDocument(rng, i*100+k)
	}
	if hasLarge(i) {
		text, _ := largeBytes()
		all = append(all[:len(all)/2:len(all)/2], append([]document{plain(i, text, "")}, all[len(all)/2:]...)...)
	}
	return all
}

func anyDocument(rng *rand.Rand, n int) document {
	drawn := rng.IntN(10_000)
	for _, strange := range strangeDocuments {
		if drawn -= strange.share; drawn < 0 {
			return strange.make(n)
		}
	}
	length := rng.IntN(240)
	if length == failingBytes {
		length++
	}
	return plain(n, length, "")
}

// documentFrame returns the i-th frame. A frame with a large document is compressed, because the uncompressed frame exceeds the
// server's message size limit.
func (r *rig) documentFrame(i int) *nats.Msg {
	var body bytes.Buffer
	for _, d := range r.documents(i) {
		body.WriteString(d.line)
		body.WriteByte('\n')
	}
	m := &nats.Msg{Subject: fmt.Sprintf("ingest.web.%d", i%64), Data: body.Bytes(), Header: nats.Header{"Input": {strconv.Itoa(i)}}}
	if hasLarge(i) {
		m.Data = new(compression.Compressor).Append(nil, compression.Zstd, m.Data)
		m.Header.Set("Content-Encoding", "zstd")
	}
	return m
}
