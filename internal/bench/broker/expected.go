package broker

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/nats-io/nats.go"

	"millrace/internal/bench"
	"millrace/internal/frame"
	"millrace/internal/ingest/results"
	"millrace/internal/operator"
	"millrace/internal/table"
	"millrace/internal/textframes"
)

// result is the result of a message, without the headers that name the message and the operators.
type result struct {
	header nats.Header
	body   []byte
}

// describing are the headers that describe the records of a result.
var describing = []string{headerContentType, results.HeaderRecords, results.HeaderFiltered, results.HeaderAnnotation, results.HeaderPart}

// check returns an error if the message with the given headers and body isn't the result.
func (want result) check(h nats.Header, body []byte) error {
	for _, key := range describing {
		if got := h.Get(key); got != want.header.Get(key) {
			return fmt.Errorf("the header %s is %q, want %q", key, got, want.header.Get(key))
		}
	}
	return operator.Compare(body, want.body)
}

// newResult returns the result with the given table of records. leftOut is the number of records that the filter leaves out.
func (c *content) newResult(t *table.Table, leftOut int) result {
	r := result{header: c.header(t.Records(), leftOut)}
	if c.framing == frame.None {
		r.body = t.AppendSingle(nil, c.format)
	} else {
		r.body = t.Append(nil, c.format, 0, t.Records())
	}
	return r
}

// nullSize is the operator that determines the size of the null worker's results.
const nullSize = "crc32c"

// nullResult returns the result that the null worker stores for each message. If the form selects records, it is the result of message 0.
func (c *content) nullResult() (result, error) {
	ops := bench.Parse(nullSize)
	if c.filter != "" {
		return c.reference(ops, 0)
	}
	var t table.Table
	t.Reset(ops, c.records)
	for i := range c.records {
		t.SetLength(i, c.size)
	}
	return c.newResult(&t, 0), nil
}

// sampleBytes is the approximate number of payload bytes that a check compares with the reference. The reference takes
// a second for a few megabytes.
const sampleBytes = 256 << 10

// checker returns a function that checks the headers and the body of the result of message i of n. If ops is nil, every result must be the
// null result. Only one goroutine may call the function.
func (c *content) checker(ops []operator.Operator, n int) func(i int, h nats.Header, body []byte) error {
	if ops == nil {
		null, err := c.nullResult()
		return func(_ int, h nats.Header, body []byte) error { return cmp.Or(err, null.check(h, body)) }
	}
	if operator.HasState(ops) {
		return c.verdictChecker(ops)
	}
	if c.framing != frame.None && !c.copies {
		return c.frameChecker(ops, n)
	}
	every := max(n*c.records*c.size/sampleBytes, 1)
	return func(i int, h nats.Header, body []byte) error {
		if i != 0 && i != n-1 && i%every != 0 {
			return nil
		}
		return c.checkReference(ops, i, h, body)
	}
}

// frameChecker implements checker for frames that repeat. It compares the results of the first frame and of one other frame with
// the reference. Equal frames must have equal results.
func (c *content) frameChecker(ops []operator.Operator, n int) func(i int, h nats.Header, body []byte) error {
	different := min(n, differentFrames)
	other := int(c.seed % uint64(different))
	first := make([]result, different)
	return func(i int, h nats.Header, body []byte) error {
		at := i % differentFrames
		if earlier := first[at]; earlier.header != nil {
			if err := earlier.check(h, body); err != nil {
				return fmt.Errorf("its frame equals that of an earlier result, but the results differ: %w", err)
			}
			return nil
		}
		first[at] = result{h, bytes.Clone(body)}
		if at != 0 && at != other {
			return nil
		}
		return c.checkReference(ops, i, h, body)
	}
}

// checkReference compares the result of message i with the reference.
func (c *content) checkReference(ops []operator.Operator, i int, h nats.Header, body []byte) error {
	want, err := c.reference(ops, i)
	if err != nil {
		return err
	}
	return want.check(h, body)
}

// reference returns the result of message i, computed with the reference implementations of the operators.
func (c *content) reference(ops []operator.Operator, i int) (result, error) {
	return c.decided(ops, i, func([][]byte) textframes.Decide { return nil })
}

// decided is like reference for any operators. decider returns the function that decides for a stateful operator.
func (c *content) decided(ops []operator.Operator, i int, decider func(inputs [][]byte) textframes.Decide) (result, error) {
	records, inputs := c.recordsOf(i)
	message, err := textframes.Append(nil, c.framing, records)
	if err != nil {
		return result{}, err
	}
	m := c.messages(ops)
	want, leftOut, err := textframes.Results(&m, message, inputs, decider(inputs))
	if err != nil {
		return result{}, err
	}
	return c.newResult(want, leftOut), nil
}
