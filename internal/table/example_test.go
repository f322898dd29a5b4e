package table_test

import (
	"fmt"

	"millrace/internal/operator"
	"millrace/internal/record"
	"millrace/internal/table"
)

// Example encodes the result of a message with three records. A device has processed the first two in one batch. The
// third is too large for a batch.
func Example() {
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		fmt.Println(err)
		return
	}
	var t table.Table
	t.Reset(ops, 3)
	for i, bytes := range []int{9, 0, 4096} {
		t.SetLength(i, bytes)
	}
	t.Put(0, 0, []byte{0x83, 0x92, 0x06, 0xe3, 0, 0, 0, 0})
	t.SetStatus(2, record.TooLarge)

	fmt.Printf("%s", t.Append(nil, operator.JSON, 0, 3))
	// Output:
	// {"bytes":9,"crc32c":"e3069283"}
	// {"bytes":0,"crc32c":"00000000"}
	// {"bytes":4096,"error":{"reason":"too_large","message":"the record exceeds a batch, or its result exceeds the server's limit"}}
}

// ExampleTable_Parts divides a result for a server with a message limit of 100 bytes.
func ExampleTable_Parts() {
	ops, err := operator.ParseList("crc32c")
	if err != nil {
		fmt.Println(err)
		return
	}
	t := table.Reference(ops, [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d")}, nil)
	_, parts, err := t.Parts(nil, operator.JSON, 100, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, p := range parts {
		fmt.Printf("part %d of %d, from record %d on:\n%s", i+1, len(parts), p.From, p.Body)
	}
	// Output:
	// part 1 of 2, from record 0 on:
	// {"bytes":1,"crc32c":"c1d04330"}
	// {"bytes":1,"crc32c":"d280b0c4"}
	// {"bytes":1,"crc32c":"20eb33c7"}
	// part 2 of 2, from record 3 on:
	// {"bytes":1,"crc32c":"f421572c"}
}
