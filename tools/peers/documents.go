package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"

	"millrace/internal/corpus"
)

// load describes the messages of one table. All documents are JSON objects, one line each.
type load struct {
	name     string
	messages int
	records  int // documents per message
	size     int // mean bytes of a document with its line break
}

const overhead = 72 // approximate number of bytes of a document besides its text

// minimum returns the length in bytes of the shortest text that peers keep. About half of the documents are shorter.
func (l load) minimum() int { return l.size - overhead }

// total returns the number of documents.
func (l load) total() int { return l.messages * l.records }

// length returns the length in bytes of the text of document id.
func (l load) length(id int) int {
	return l.minimum() - l.size/4 + int(corpus.Seed(1, id)%uint64(l.size/2))
}

// document is a document. Peers add the member check.
type document struct {
	ID    int    `json:"id"`
	URL   string `json:"url"`
	Text  string `json:"text"`
	Check *check `json:"check,omitempty"`
}

// check is the member that peers compute from the text.
type check struct {
	Bytes  int    `json:"bytes"`  // length in UTF-8
	CRC32C string `json:"crc32c"` // eight lower-case hexadecimal digits
}

// lineBytes is the approximate length of a line of a text.
const lineBytes = 80

var vocabulary = corpus.NewVocabulary(1)

func (l load) document(id int) document {
	text := vocabulary.AppendUTF8(nil, corpus.Seed(2, id), l.length(id))
	for i := lineBytes; i < len(text); i += lineBytes {
		if space := bytes.LastIndexByte(text[:i], ' '); space >= 0 {
			text[space] = '\n'
		}
	}
	return document{ID: id, URL: "https://example.org/" + strconv.Itoa(id), Text: string(text)}
}

// message returns the body of message i: its documents, each with a line break if there are several.
func (l load) message(i int) []byte {
	var body bytes.Buffer
	lines := json.NewEncoder(&body)
	for id := i * l.records; id < (i+1)*l.records; id++ {
		if err := lines.Encode(l.document(id)); err != nil {
			panic(err) // a document has only strings and integers
		}
	}
	if l.records == 1 {
		return bytes.TrimSuffix(body.Bytes(), []byte("\n"))
	}
	return body.Bytes()
}

// sampleEvery is the distance between documents whose content a verifier compares.
const sampleEvery = 101

// verifier checks the results of one round. Each long document must occur exactly once, and no other document may
// occur. The verifier compares every 101st document with the original.
type verifier struct {
	load
	seen  []bool
	found int
}

// add checks the documents of one result.
func (v *verifier) add(body []byte) error {
	for line := range bytes.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := v.addDocument(line); err != nil {
			return fmt.Errorf("%w: %.300s", err, line)
		}
	}
	return nil
}

func (v *verifier) addDocument(line []byte) error {
	_, rest, _ := bytes.Cut(line, []byte(`"id":`))
	digits := len(rest) - len(bytes.TrimLeft(rest, "0123456789"))
	id, err := strconv.Atoi(string(rest[:digits]))
	switch {
	case err != nil || id >= len(v.seen):
		return fmt.Errorf("a result without a known id")
	case v.seen[id]:
		return fmt.Errorf("document %d occurs twice", id)
	case v.length(id) < v.minimum():
		return fmt.Errorf("document %d is too short", id)
	}
	v.seen[id] = true
	v.found++
	if id%sampleEvery != 0 {
		return nil
	}
	var got document
	if err := json.Unmarshal(line, &got); err != nil {
		return err
	}
	want := v.document(id)
	want.Check = &check{len(want.Text), fmt.Sprintf("%08x", crc32.Checksum([]byte(want.Text), castagnoli))}
	if got.Check == nil || *got.Check != *want.Check || got.ID != id || got.URL != want.URL || got.Text != want.Text {
		return fmt.Errorf("document %d differs from %+v", id, want)
	}
	return nil
}

// complete returns an error if a long document is missing.
func (v *verifier) complete() error {
	for id, seen := range v.seen {
		if !seen && v.length(id) >= v.minimum() {
			return fmt.Errorf("document %d is missing: %d were found", id, v.found)
		}
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
