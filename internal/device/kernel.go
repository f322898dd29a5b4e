package device

// Kernel is an operator bound to a device with its parameters. It is immutable and may be launched on any stream of its
// device at any time.
type Kernel interface {
	// Name returns the operator's name.
	Name() string

	// Needs returns the scratch and result memory for a batch of that shape. It makes no call to the hardware.
	Needs(Shape) Needs

	// Close frees the kernel's resources on the device. No launch may be in flight. A second Close returns nil.
	Close() error
}

// Shape describes a ragged batch before it runs.
type Shape struct {
	Rows    int // number of rows: entries of the offsets table minus one
	Bytes   int // total size of the rows in bytes
	Longest int // size of the longest row in bytes
}

// Needs is the memory that one launch needs, in bytes.
type Needs struct {
	Scratch int // undefined contents before and after; 0 for none
	Result  int // the operator's result records, one per row, back to back

	// InPlace means that it is faster to access the batch in host memory than to copy it. A GPU sets it for small
	// batches, the host device for all. Only a device that is a Mapper sets it.
	InPlace bool
}

// LaunchArgs describes one launch over a ragged batch. All memory is device memory, except that if Needs.InPlace is
// set, Rows, Offsets and Result may be host memory mapped with Mapper.Map.
type LaunchArgs struct {
	Shape   Shape
	Rows    Memory // bytes of the rows, back to back; Shape.Bytes long
	Offsets Memory // Shape.Rows+1 little-endian uint32: row i is Rows[Offsets[i]:Offsets[i+1]]
	Scratch Memory // at least Needs.Scratch bytes, aligned to 256
	Result  Memory // at least Needs.Result bytes, aligned to 256
}

// HostKernel is an operator in Go, for devices that use host memory as device memory (host and sim).
type HostKernel interface {
	// Name returns the operator's name.
	Name() string

	// Bind checks a parameter block and returns the operator bound to it. It fails with ErrInvalid for an invalid
	// block.
	Bind(params []byte) (BoundHostKernel, error)
}

// BoundHostKernel is a HostKernel with its parameters. It is immutable.
type BoundHostKernel interface {
	// Needs returns the same as Kernel.Needs.
	Needs(Shape) Needs

	// Run computes the batch: row i is rows[offsets[i]:offsets[i+1]]. The slices scratch and result have at least the
	// length that Needs returns, undefined contents and an alignment of 8 bytes. Run may distribute its work with
	// parallel. It must not use its arguments after it returns.
	Run(rows []byte, offsets []uint32, scratch, result []byte, parallel Parallel) error
}

// Parallel calls fn(0) to fn(n-1), possibly concurrently, and returns when all calls have returned.
type Parallel func(n int, fn func(i int))
