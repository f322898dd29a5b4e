package device

// Kernel is an operator bound to a device with its parameters. It is immutable and may be launched on any
// stream of its device at any time.
type Kernel interface {
	// Name is the operator's name.
	Name() string

	// Needs is how much scratch and result memory a batch of that shape takes. It makes no call to the
	// hardware.
	Needs(Shape) Needs

	// Close gives back what the kernel holds on the device. No launch may be in flight. A second Close
	// returns nil.
	Close() error
}

// Shape is what is known of a ragged batch before it runs.
type Shape struct {
	Rows    int // entries of the offsets table, less one
	Bytes   int // bytes of all rows together
	Longest int // bytes of the longest row
}

// Needs is the memory that one launch takes, in bytes.
type Needs struct {
	Scratch int // undefined content before and after; 0 for none
	Result  int // the operator's result records, one a row, back to back

	// InPlace says that reading and writing the batch where it is, in host memory, is faster than copying it: a
	// GPU says so of small ones, the host device of all. Only a device that is a Mapper says so.
	InPlace bool
}

// LaunchArgs is one launch over a ragged batch. All memory is on the device, but where Needs.InPlace allows it
// Rows, Offsets and Result may be host memory that Mapper.Map gave an address.
type LaunchArgs struct {
	Shape   Shape
	Rows    Memory // the rows' bytes, back to back; Shape.Bytes long
	Offsets Memory // Shape.Rows+1 little-endian uint32: row i is Rows[Offsets[i]:Offsets[i+1]]
	Scratch Memory // at least Needs.Scratch bytes, aligned to 256
	Result  Memory // at least Needs.Result bytes, aligned to 256
}

// HostKernel is an operator in Go, for devices whose memory is the host's (host and sim).
type HostKernel interface {
	// Name is the operator's name.
	Name() string

	// Bind checks a parameter block and returns the operator with it; ErrInvalid for a bad block.
	Bind(params []byte) (BoundHostKernel, error)
}

// BoundHostKernel is a HostKernel with its parameters. It is immutable.
type BoundHostKernel interface {
	// Needs is as Kernel.Needs.
	Needs(Shape) Needs

	// Run computes the batch: row i is rows[offsets[i]:offsets[i+1]]. scratch and result have at least
	// the length that Needs says, undefined content, and alignment of 8. It may spread its work with
	// parallel, and touches its arguments no more once it has returned.
	Run(rows []byte, offsets []uint32, scratch, result []byte, parallel Parallel) error
}

// Parallel calls fn(0) to fn(n-1), some of them at once, and returns when all have returned.
type Parallel func(n int, fn func(i int))
