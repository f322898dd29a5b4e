package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
)

// Document is a document in a result of the format annotated.
type Document struct {
	JSON json.RawMessage // the whole document with its annotation, as a slice of the body
	Line Line            // the annotation
}

// Documents iterates over the documents of a result of the format annotated, in the input's order. name is the member with the results,
// which is the value of HeaderAnnotation. Documents ends at the first line that it can't decode, with an error that names the line.
func Documents(body []byte, name string) iter.Seq2[Document, error] {
	return decodeLines(body, func(text []byte) (Document, error) {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(text, &members); err != nil {
			return Document{}, err
		}
		d := Document{JSON: bytes.TrimSuffix(text, []byte("\n"))}
		annotation, ok := members[name]
		if !ok {
			return Document{}, fmt.Errorf("not a document with results: the member %q is missing", name)
		}
		if err := json.Unmarshal(annotation, &d.Line); err != nil {
			return Document{}, fmt.Errorf("%s: %w", name, err)
		}
		return d, nil
	})
}
