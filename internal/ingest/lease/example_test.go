package lease

import (
	"fmt"

	"millrace/internal/ingest/lease/members"
)

// A second worker joins and gets half of the partitions. It takes three inputs of its first partition. Their results are stored
// out of stream order, and an acknowledgement covers only inputs before the first missing result.
func Example() {
	owners := members.Assign(4, "millrace.members.INGEST.millrace", []members.Member{{ID: "first", Owns: []int{0, 1, 2, 3}}, {ID: "second"}})
	fmt.Println(owners)

	floor := newFloor(40) // everything up to sequence 40 is acknowledged
	for number, sequence := range []uint64{41, 45, 46} {
		fmt.Println(sequence, floor.take(uint64(number+1), sequence))
	}
	floor.done(45)
	fmt.Println(floor.acknowledge())
	floor.done(41)
	fmt.Println(floor.acknowledge())

	// Output:
	// [first first second second]
	// 41 new
	// 45 new
	// 46 new
	// 0 false
	// 45 true
}
