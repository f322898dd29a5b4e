package device

import "fmt"

// The largest batch that a resident kernel takes. One block of a GPU works on it, so what is larger is faster with
// a launch.
const (
	MostResidentRows  = 1024
	MostResidentBytes = 64 << 10
)

// ResidentAlign is what the offsets table of a posted batch is aligned to in its region, in bytes; the region itself
// must be so aligned too, and the result to 4.
const ResidentAlign = 16

// Residenter is implemented by devices that can keep a kernel running which takes batches from a mailbox. It saves
// the launch and the copies of a small batch, and holds part of the device for it. A device on a virtual clock has none:
// no time passes there while a caller waits by asking again.
type Residenter interface {
	// Resident starts k as a resident kernel for batches up to most. It occupies part of the device (one
	// block on a GPU) until Close, or until it has had nothing to do for about a second: then it rests, and the
	// next Post starts it again. k must stay open as long. Fails with ErrInvalid for a bound above
	// MostResidentRows or MostResidentBytes, ErrUnavailable where the operator or the device has no resident
	// kernels, and ErrOutOfMemory where there is no room for one more.
	//
	// On a GPU, calls that wait for the whole device (Alloc, Free, AllocHost, FreeHost, closing a Kernel)
	// may wait for the resident kernel to rest. Allocate before, or close it first.
	Resident(k Kernel, most Shape) (Resident, error)
}

// Resident is a kernel that stays on the device. Methods are safe for concurrent use.
type Resident interface {
	// Post hands one batch over. region holds the rows' bytes at its start and, table bytes into it, the
	// offsets table: what LaunchArgs calls Rows and Offsets. The records go to the start of result. Both are
	// buffers of this device, read and written in place over the bus, up to the next multiple of
	// ResidentAlign behind the rows' bytes; they belong to the device until Done has said true, or Close has
	// returned.
	//
	// There is one batch at a time: ErrInvalid until Done has said true of the last one. ErrInvalid also for
	// a shape beyond what Resident was given, and for buffers that are too short or not aligned. After an
	// error nothing was posted, and the caller has its buffers.
	Post(shape Shape, region HostBuffer, table int, result HostBuffer) error

	// Done says whether the posted batch is finished, and its results are there to read; true where nothing
	// was posted. It is cheap: to wait, call it again and again. ErrLost if the device is.
	Done() (bool, error)

	// Close finishes a batch that is posted, stops the kernel, and returns when it has gone. Post and Done
	// fail with ErrClosed from then on. A second Close returns nil.
	Close() error
}

// CheckResident is for devices: it says what is wrong with the largest batch that Resident is asked for.
func CheckResident(most Shape) error {
	switch {
	case most.Rows < 0 || most.Bytes < 0 || most.Longest < 0 || most.Longest > most.Bytes || most.Rows == 0 && most.Bytes > 0:
		return fmt.Errorf("impossible shape %+v", most)
	case most.Rows > MostResidentRows:
		return fmt.Errorf("batches of up to %d rows: give at most %d, and launch larger ones", most.Rows, MostResidentRows)
	case most.Bytes > MostResidentBytes:
		return fmt.Errorf("batches of up to %d bytes: give at most %d, and launch larger ones", most.Bytes, MostResidentBytes)
	}
	return nil
}

// CheckPost is for devices: it says what is wrong with a batch that is posted to a resident kernel for batches up
// to most. needs is what the kernel says of shape.
func CheckPost(shape, most Shape, needs Needs, region HostBuffer, table int, result HostBuffer) error {
	end := table + 4*(shape.Rows+1)
	switch {
	case shape.Rows < 0 || shape.Bytes < 0 || shape.Longest < 0 || shape.Longest > shape.Bytes || shape.Rows == 0 && shape.Bytes > 0:
		return fmt.Errorf("impossible shape %+v", shape)
	case shape.Rows > most.Rows || shape.Bytes > most.Bytes || shape.Longest > most.Longest:
		return fmt.Errorf("shape %+v: this resident kernel was started for up to %+v", shape, most)
	case table < shape.Bytes || table%ResidentAlign != 0:
		return fmt.Errorf("the offsets table at %d: put it behind the %d bytes of the rows, at a multiple of %d", table, shape.Bytes, ResidentAlign)
	case end < table || region.Len() < end:
		return fmt.Errorf("a region of %d bytes: rows and offsets table take %d", region.Len(), end)
	case result.Len() < needs.Result:
		return fmt.Errorf("%d bytes for the result: this batch takes %d", result.Len(), needs.Result)
	}
	return nil
}
