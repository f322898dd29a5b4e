package demo

import (
	"fmt"
	"sort"

	"millrace/internal/frame"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/table"
	"millrace/internal/textframes"
)

// source generates the messages and checks their results.
type source struct {
	*texts
	memory.Messages
	verdicts *textframes.Verdicts // nil without a stateful operator
}

// Append appends the uncompressed message i to dst.
func (s *source) Append(dst []byte, i int) []byte {
	_, texts := s.appendMessage(nil, i)
	return s.pack(dst, texts, i)
}

// pack appends the uncompressed message i, which has the given texts, to dst. If texts are fields, each becomes a JSON object.
func (s *source) pack(dst []byte, texts [][]byte, i int) []byte {
	records := texts
	if s.Split.Field != "" {
		records = make([][]byte, len(texts))
		for r, text := range texts {
			records[r] = textframes.AppendDocument(nil, i*len(texts)+r, s.Split.Field, text)
		}
	}
	dst, err := textframes.Append(dst, s.Split.Framing, records)
	if err != nil {
		panic("demo: " + err.Error()) // Frames.Check has accepted the framing, and every frame can carry these records
	}
	return dst
}

// part is one of several messages with the results of an input.
type part struct {
	from int // number of the part's first record, or 0 in the first part
	body []byte
}

// turn is the place of a message in the order of the stream.
type turn struct {
	sequence uint64
	before   <-chan struct{} // closed when the verdicts on all earlier messages are known; nil for the first
	known    func()          // closes the channel before of the next message; may be called twice
}

// check compares all parts of the result of message i with the reference. It uses buffer as memory and returns the buffer for reuse. kept
// is the number of records in the result.
func (s *source) check(buffer []byte, i int, at turn, parts []part) (_ []byte, kept int, err error) {
	buffer, records := s.appendMessage(buffer[:0], i)
	want, _, err := textframes.Results(&s.Messages, s.pack(nil, records, i), records, s.decider(at, records))
	if err != nil {
		return buffer, 0, err
	}
	if s.Split.Framing == frame.None {
		return buffer, want.Records(), s.checkSingle(want, parts)
	}
	return buffer, want.Records(), s.checkParts(want, parts)
}

// decider returns the function that puts the verdicts on a message into its results, or nil if no operator is stateful. It computes the
// keys, which takes most of the time, without waiting for earlier messages.
func (s *source) decider(at turn, records [][]byte) textframes.Decide {
	if s.verdicts == nil {
		return nil
	}
	keys := s.verdicts.Keys(records)
	return func(t *table.Table, asked []uint32) {
		if at.before != nil {
			<-at.before
		}
		s.verdicts.Put(t, asked, at.sequence, keys)
		at.known()
	}
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
