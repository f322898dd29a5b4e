package demo

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"

	"millrace/internal/frame"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/table"
	"millrace/internal/textframes"
)

// source generates the messages and checks their results.
type source struct {
	texts
	memory.Messages
}

// idField is the name of the number of each document, if texts are fields of JSON objects.
const idField = "id"

// Append appends the uncompressed message i to dst.
func (s *source) Append(dst []byte, i int) []byte {
	_, records := s.texts.texts(nil, i)
	if s.Split.Field != "" {
		records = s.objects(records, i)
	}
	dst, err := textframes.Append(dst, s.Split.Framing, records)
	if err != nil {
		panic("demo: " + err.Error()) // Frames.Check has accepted the framing, and every frame can carry these records
	}
	return dst
}

// objects returns a JSON object for each text of message i.
func (s *source) objects(texts [][]byte, i int) [][]byte {
	field, _ := json.Marshal(s.Split.Field) // a string has a JSON text
	objects := make([][]byte, len(texts))
	for r, t := range texts {
		text, _ := json.Marshal(string(t))
		object := fmt.Appendf(nil, `{"%s":`, idField)
		object = strconv.AppendInt(object, int64(i)*int64(len(texts))+int64(r), 10)
		object = append(append(append(object, ','), field...), ':')
		objects[r] = append(append(object, text...), '}')
	}
	return objects
}

// part is one of several messages with the results of an input.
type part struct {
	from int // number of the part's first record, or 0 in the first part
	body []byte
}

// check compares all parts of the result of message i with the reference. It uses buffer as memory and returns the buffer for reuse. kept
// is the number of records in the result.
func (s *source) check(buffer []byte, i int, parts []part) (_ []byte, kept int, err error) {
	buffer, records := s.texts.texts(buffer[:0], i)
	want := table.Reference(s.Operators, records, nil)
	var message frame.Frame
	if s.Selects() || s.Split.Selects() {
		if err := s.Split.Open(&message, "", s.Append(nil, i)); err != nil {
			return buffer, 0, err
		}
		want.Keep(s.Split.Keep, &message)
		want.Annotate(s.AnnotateAs)
	}
	if s.Selects() {
		conditions := 0
		if s.Filter != nil {
			conditions = s.Filter.Len()
		}
		want = want.Select(want.Choose(s.Filter, nil, make([]int, conditions+1)))
	}
	if s.Split.Framing == frame.None {
		return buffer, want.Records(), s.checkSingle(want, parts)
	}
	return buffer, want.Records(), s.checkParts(want, parts)
}

// checkSingle compares the result of a message that is one record.
func (s *source) checkSingle(want *table.Table, parts []part) error {
	switch {
	case len(parts) != 1:
		return fmt.Errorf("the result has %d parts, want 1", len(parts))
	case want.Records() == 0:
		return operator.Compare(parts[0].body, nil)
	}
	return operator.Compare(parts[0].body, want.AppendSingle(nil, s.Format))
}

// checkParts compares the parts of the result of a message with many records.
func (s *source) checkParts(want *table.Table, parts []part) error {
	from := 0
	for n, p := range parts {
		to := want.Records()
		if n+1 < len(parts) {
			to = sort.Search(want.Records(), func(i int) bool { return want.Number(i) >= parts[n+1].from })
		}
		if n == 0 && p.from != 0 || n > 0 && (from == want.Records() || want.Number(from) != p.from) || from > to {
			return fmt.Errorf("part %d begins with record %d, which isn't the next one of %d", n+1, p.from, want.Records())
		}
		if err := want.Check(p.body, s.Format, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}
