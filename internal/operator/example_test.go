package operator_test

import (
	"fmt"

	"millrace/internal/operator"
)

// Example computes the results of one payload with the reference implementation, and encodes the body of its result
// message.
func Example() {
	ops, err := operator.ParseList("crc32c, minhash?k=3&hashes=2")
	if err != nil {
		fmt.Println(err)
		return
	}
	payload := []byte("123456789")

	records := make([][]byte, len(ops))
	for i, op := range ops {
		records[i] = op.AppendReference(nil, payload)
	}
	body := operator.JSON.Append(nil, ops, len(payload), records)
	fmt.Printf("%s\n", body)
	fmt.Println("check:", operator.JSON.Check(ops, payload, body))
	// Output:
	// {"bytes":9,"crc32c":"e3069283","minhash":{"k":3,"seed":42,"signature":[204652371,391832674]}}
	// check: <nil>
}

// ExampleParse shows that an operator's String is its complete spec, including the defaults.
func ExampleParse() {
	op, err := operator.Parse("minhash?k=5")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(op)
	fmt.Println(op.Stride(), "bytes per record")
	// Output:
	// minhash?k=5&hashes=128&seed=42
	// 512 bytes per record
}
