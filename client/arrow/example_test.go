package arrow_test

import (
	"fmt"

	"millrace/client/arrow"
)

// Example puts three records in one message. The header Content-Type is client.TypeArrow.
func Example() {
	frame := arrow.NewFrame("payload")
	for _, record := range []string{"first", "second"} {
		if err := frame.Append([]byte(record)); err != nil {
			fmt.Println(err)
			return
		}
	}
	frame.AppendNull()
	fmt.Println(frame.Len(), "records")
	body, err := frame.Encode(nil)
	fmt.Println(len(body) > 0, err)
	// Output:
	// 3 records
	// true <nil>
}
