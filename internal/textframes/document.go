package textframes

import (
	"encoding/json"
	"strconv"

	"millrace/internal/frame"
	"millrace/internal/memory"
	"millrace/internal/table"
)

// AppendDocument appends a JSON object without line breaks to dst: the number of a document as the member id, and its text as the member
// called field.
func AppendDocument(dst []byte, number int, field string, text []byte) []byte {
	name, _ := json.Marshal(field) // a string has a JSON text
	value, _ := json.Marshal(string(text))
	dst = append(dst, `{"id":`...)
	dst = append(strconv.AppendInt(dst, int64(number), 10), ',')
	dst = append(append(dst, name...), ':')
	return append(append(dst, value...), '}')
}

// Decide puts the values of a stateful operator for the given records into the table of a message's results.
type Decide func(t *table.Table, records []uint32)

// Results returns the expected results of a message, computed with the reference implementations of the operators. m has the settings of
// the worker, body is the uncompressed message, and records are the inputs of the operators. leftOut is the number of records that the
// filter leaves out. decide puts the values of a stateful operator into the table. It is nil without a stateful operator. Results returns
// the error of Splitter.Open.
func Results(m *memory.Messages, body []byte, records [][]byte, decide Decide) (want *table.Table, leftOut int, err error) {
	want = table.Reference(m.Operators, records, nil)
	if m.Selects() || m.Split.Selects() {
		message := new(frame.Frame)
		if err := m.Split.Open(message, "", body); err != nil {
			return nil, 0, err
		}
		want.Keep(m.Split.Keep, message)
		want.Annotate(m.Split.Annotate)
	}
	conditions := 0
	if m.Filter != nil {
		conditions = m.Filter.Len()
	}
	counts := make([]int, conditions+1)
	asked := want.Ask(m.Filter, nil, counts)
	if decide != nil {
		decide(want, asked)
	}
	if !m.Selects() {
		return want, 0, nil
	}
	want = want.Select(want.Choose(m.Filter, asked, nil, counts))
	for _, n := range counts {
		leftOut += n
	}
	return want, leftOut, nil
}
