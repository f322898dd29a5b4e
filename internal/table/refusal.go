package table

import (
	"slices"
	"sync"

	"millrace/internal/operator"
	"millrace/internal/record"
)

// refusals has the reasons for which operators refused records. Each text is stored once, because an operator has few reasons.
type refusals struct {
	mu      sync.Mutex // guards the other fields, except the elements of causes
	numbers map[refusal]uint16
	texts   []string // texts[n-1] belongs to number n
	names   []string // names[n-1] is the operator of number n
	causes  []uint16 // for each record the number of its text, or 0; nil if no operator can refuse a record

	blamed map[int]string // the operator that failed on a record, by the record's index; nil if none is known
}

// refusal is why an operator refuses records.
type refusal struct {
	op     int // index of the operator
	reason string
}

// mostRefusal is the maximum length of a refusal's text in JSON: the name has up to 32 characters and the reason up to 64, each of which may
// need a backslash.
const mostRefusal = len("operator : ") + 32 + 2*64

// reset prepares the refusals for that many records.
func (r *refusals) reset(ops []operator.Operator, records int) {
	clear(r.numbers)
	r.texts, r.names, r.blamed = r.texts[:0], r.names[:0], nil
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

// number returns the number of a refusal's text. It returns 0 if there are too many texts.
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

// Refuse records that the operator with index op, an operator.Refuser, refused record i for that reason. The record's status becomes
// record.OperatorError. Like SetStatus, it may be called concurrently for different records.
func (t *Table) Refuse(i, op int, reason string) {
	t.SetStatus(i, record.OperatorError)
	t.refusals.causes[i] = t.refusals.number(refusal{op, reason}, t.ops[op].Name())
}

// Message returns a sentence for people about the status of record i: why an operator refused it, or what the status means.
func (t *Table) Message(i int) string {
	s := t.statuses[i]
	if r := &t.refusals; s == record.OperatorError && r.causes != nil && r.causes[i] > 0 {
		return r.texts[r.causes[i]-1]
	}
	return s.Message()
}

// Blame records that the operator with that name failed on record i. Unlike a refusal it isn't part of the result, because not every
// worker that computes the record may find out which operator failed.
func (t *Table) Blame(i int, name string) {
	r := &t.refusals
	if r.blamed == nil {
		r.blamed = map[int]string{}
	}
	r.blamed[i] = name
}

// Operator returns the name of the operator that refused record i or failed on it, or "" if none is known.
func (t *Table) Operator(i int) string {
	if r := &t.refusals; t.statuses[i] == record.OperatorError && r.causes != nil && r.causes[i] > 0 {
		return r.names[r.causes[i]-1]
	}
	return t.refusals.blamed[i]
}

// appendText appends a text of printable ASCII characters as it is in a JSON string. It replaces other characters.
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
