package streams

// Schedule determines how batches share a device: the number of lanes, the host buffers per lane, the streams, and the
// waits of the host. Serial, DoubleBuffered, Triple and Overlapped are predefined schedules.
type Schedule struct {
	Name string

	// Lanes is the number of lanes. 0 means Options.Lanes.
	Lanes int

	// Buffers is the number of host buffers per lane, 1 or 2. With 2, one buffer fills while the device reads the
	// other.
	Buffers int

	Topology Topology

	// CopiesFrom and SharedFrom apply to StreamBySize, in payload bytes. Batches of at least CopiesFrom are copied on
	// the streams that lanes share. Batches of at least SharedFrom are also computed on a shared stream.
	CopiesFrom, SharedFrom int

	// HostWaits makes the host wait after each stage and record a timestamp before each stage. With one lane, nothing
	// overlaps. `worker plan` and `worker bench` use such a schedule as the baseline (adr/0036).
	HostWaits bool

	// Completion selects how the pipeline detects that a batch has completed. The zero value is ByNotify.
	Completion Completion
}

// Completion is a method of detecting that a batch has completed.
type Completion uint8

const (
	// ByNotify makes the device notify the host, so no thread polls. Submit may first poll a small batch that is alone
	// on the device (see Options.Spin).
	ByNotify Completion = iota

	// ByAdaptivePolling polls the oldest batch in flight of each queue. Between polls it sleeps for a fraction of the
	// recent time between completions. It needs a few calls per batch and no work on the device.
	ByAdaptivePolling
)

// Topology selects the streams for the stages of a batch.
type Topology uint8

const (
	// StreamPerLane puts all stages of a lane's batches on the lane's own stream. Lanes overlap because their streams
	// are independent.
	StreamPerLane Topology = iota

	// StreamPerStage uses three streams for all lanes: one for copies in, one for kernels and one for copies out.
	// Events order the stages of a batch.
	StreamPerStage

	// StreamBySize works like StreamPerLane for small batches, and like StreamPerStage for batches of at least
	// Schedule.SharedFrom bytes. Batches from Schedule.CopiesFrom to SharedFrom use one shared stream per direction for
	// their copies, so that the copies don't compete. Their kernels use the lanes' streams, because small kernels fill
	// a GPU only if several run at once.
	StreamBySize
)

var (
	// Serial overlaps nothing. It has one lane and one buffer, and the host waits for each stage before it enqueues the
	// next.
	Serial = Schedule{Name: "serial", Lanes: 1, Buffers: 1, HostWaits: true}

	// DoubleBuffered copies batch i while batch i-1 computes. It has two host buffers, two device buffers, and one
	// stream per engine. Events order the streams.
	DoubleBuffered = Schedule{Name: "double", Lanes: 2, Buffers: 1, Topology: StreamPerStage, Completion: ByAdaptivePolling}

	// Triple keeps a GPU's three engines busy at once. Large batches use one stream per engine, one batch after
	// another. Small batches run concurrently. The worker uses Triple on a GPU. Triple polls adaptively, because a
	// notification would delay the next work on the stream.
	Triple = Schedule{Name: "triple", Buffers: 2, Topology: StreamBySize, CopiesFrom: 512 << 10, SharedFrom: 8 << 20,
		Completion: ByAdaptivePolling}

	// Overlapped gives every lane its own stream, and fills a second host buffer while the first is in flight. The
	// worker uses it on a CPU.
	Overlapped = Schedule{Name: "overlapped", Buffers: 2}
)
