package frame_test

import (
	"fmt"

	"millrace/internal/frame"
)

// Example splits a message of three lines into batches of two rows.
func Example() {
	s := frame.Splitter{Framing: frame.Auto, MaxRecord: 16}
	var f frame.Frame // reused for each message
	if err := s.Open(&f, "application/x-ndjson", []byte("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n")); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Records(), "records,", f.Bytes(), "bytes")
	for cursor := f.Cursor(); !cursor.Done(); {
		batch := newBatch(64, 2) // a *streams.Batch in the worker
		cursor.Fill(batch, 100)
		fmt.Printf("%s\n", batch.rows())
	}

	err := s.Open(&f, "application/x-ndjson", make([]byte, frame.DefaultMaxBytes+1))
	fmt.Println(err)
	// Output:
	// 3 records, 21 bytes
	// [{"a":1} {"a":2}]
	// [{"a":3}]
	// too_large at byte 67108864: the frame has 67108865 bytes, more than 67108864: send smaller frames, or raise MILLRACE_FRAME_BYTES
}
