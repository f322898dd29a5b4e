package table

import (
	"slices"
	"sync"

	"millrace/internal/operator"
	"millrace/internal/record"
)

// refusals holds the reasons why operators refused records. It stores each text once, because an operator has few
// reasons.
type refusals struct {
	mu      sync.Mutex // guards the other fields, except the elements of causes
	numbers map[refusal]uint16
	texts   []string // texts[n-1] belongs to number n
	names   []string // names[n-1] is the operator of number n
	causes  []uint16 // number of each record's text, or 0; nil if no operator can refuse a record

	blamed map[int]string // name of the operator that failed on a record, by the record's index; may be nil
	failed map[int]string // text of Fail, by the record's index; may be nil
}

// refusal is a reason why an operator refuses records.
type refusal struct {
	op     int // index of the operator
	reason string
}

// maxRefusal is the maximum length of a refusal's text in JSON. The name of the operator has up to 32 characters. The
// reason has up to 64 characters, and each may need a backslash.
const maxRefusal = len("operator : ") + 32 + 2*64

// reset prepares r for a message with the given number of records.
func (r *refusals) reset(ops []operator.Operator, records int) {
	clear(r.numbers)
	r.texts, r.names, r.blamed, r.failed = r.texts[:0], r.names[:0], nil, nil
	if !canRefuse(ops) {
		r.causes = nil
		return
	}
	r.causes = resized(r.causes, records)
	clear(r.causes)
}

func canRefuse(ops []operator.Operator) bool {
	return slices.ContainsFunc(ops, func(op operator.Operator) bool {
		_, ok := op.(operator.Refuser)
		return ok
	})
}

// number returns the number of the refusal's text. It stores a new text. It returns 0 if there are too many texts.
func (r *refusals) number(of refusal, name string) uint16 {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ok := r.numbers[of]
	if ok || len(r.texts) == 1<<16-1 {
		return n
	}
	if r.numbers == nil {
		r.numbers = map[refusal]uint16{}
	}
	r.texts, r.names = append(r.texts, operator.RefusalText(name, of.reason)), append(r.names, name)
	n = uint16(len(r.texts))
	r.numbers[of] = n
	return n
}

// Refuse records that the operator with index op refused record i for the given reason. The operator must be an
// operator.Refuser. The record's status becomes record.OperatorError.
func (t *Table) Refuse(i, op int, reason string) {
	t.SetStatus(i, record.OperatorError)
	t.refusals.causes[i] = t.refusals.number(refusal{op, reason}, t.ops[op].Name())
}

// Fail sets the status of record i to s. text describes the reason for users.
func (t *Table) Fail(i int, s record.Status, text string) {
	t.SetStatus(i, s)
	r := &t.refusals
	if r.failed == nil {
		r.failed = map[int]string{}
	}
	r.failed[i] = text
}

// Message returns a human-readable sentence about the status of record i: the operator's reason for a refusal, or the
// meaning of the status.
func (t *Table) Message(i int) string {
	s := t.statuses[i]
	r := &t.refusals
	if s == record.OperatorError && r.causes != nil && r.causes[i] > 0 {
		return r.texts[r.causes[i]-1]
	}
	if text := r.failed[i]; text != "" {
		return text
	}
	return s.Message()
}

// Blame records the name of the operator that failed on record i. The name isn't part of the result, because another
// worker might be unable to identify the operator.
func (t *Table) Blame(i int, name string) {
	r := &t.refusals
	if r.blamed == nil {
		r.blamed = map[int]string{}
	}
	r.blamed[i] = name
}

// Operator returns the name of the operator that refused record i or failed on it, or "" if the operator is unknown.
func (t *Table) Operator(i int) string {
	if r := &t.refusals; t.statuses[i] == record.OperatorError && r.causes != nil && r.causes[i] > 0 {
		return r.names[r.causes[i]-1]
	}
	return t.refusals.blamed[i]
}

// appendText appends text in the form for a JSON string. It replaces all characters except printable ASCII with "?".
func appendText(dst []byte, text string) []byte {
	for _, c := range []byte(text) {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ' || c > '~':
			dst = append(dst, '?')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
