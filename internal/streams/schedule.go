package streams

// Schedule sets how batches share a device: the number of lanes, the host buffers per lane, the streams, and when the
// host waits. Serial, DoubleBuffered, Triple and Overlapped are ready-made values.
type Schedule struct {
	Name string

	// Lanes fixes the number of lanes; 0 means Config.Lanes.
	Lanes int

	// Buffers is the number of host buffers per lane, 1 or 2. With 2, one fills while the device reads the other.
	Buffers int

	// Topology selects the streams for a lane's work.
	Topology Topology

	// CopiesFrom and SharedFrom apply to StreamBySize, in payload bytes. Batches of at least CopiesFrom are copied on
	// the streams that lanes share. Batches of at least SharedFrom are also computed there.
	CopiesFrom, SharedFrom int

	// HostWaits makes the host wait after each stage, and records a timestamp before each stage too. With one lane,
	// nothing overlaps: `worker plan` and `worker bench` compare with that (adr/0036).
	HostWaits bool

	// Completion selects how the host learns that a batch has completed. The zero value is ByNotify.
	Completion Completion
}

// Completion is how the host learns that a batch has completed.
type Completion uint8

const (
	// ByNotify makes the device call the host. No thread waits. Submit may first poll a small batch that has the device
	// to itself: see Config.Spin.
	ByNotify Completion = iota

	// ByAdaptivePolling polls the oldest batch in flight of each queue, and sleeps in between for a fraction of the
	// time that batches take. It needs a few calls per batch and no work on the device.
	ByAdaptivePolling
)

// Topology selects the streams for the stages of a batch.
type Topology uint8

const (
	// StreamPerLane puts all stages of a lane's batches on the lane's own stream. Lanes overlap because nothing orders
	// their streams.
	StreamPerLane Topology = iota

	// StreamPerStage has one stream for copies in, one for kernels and one for copies out, shared by all lanes. Events
	// order the stages of a batch. They also order a batch after the previous batch on its lane.
	StreamPerStage

	// StreamBySize is StreamPerLane for small batches and StreamPerStage for batches of at least Schedule.SharedFrom
	// bytes. Between Schedule.CopiesFrom and SharedFrom, copies use one shared queue per direction, so that they don't
	// compete, and kernels use the lanes' streams, because small kernels fill a GPU only if several run at once.
	StreamBySize
)

var (
	// Serial has no overlap: one lane, one buffer, and a host that waits for each stage before it enqueues the next.
	Serial = Schedule{Name: "serial", Lanes: 1, Buffers: 1, HostWaits: true}

	// DoubleBuffered copies batch i while batch i-1 computes. It has two host buffers, two device buffers, and a stream
	// for each engine, with events between them.
	DoubleBuffered = Schedule{Name: "double", Lanes: 2, Buffers: 1, Topology: StreamPerStage, Completion: ByAdaptivePolling}

	// Triple keeps a GPU's three engines busy at once: large batches follow each other through one stream per engine,
	// and small batches run side by side. The worker uses it on a GPU, with adaptive polling, because a notification or
	// an interrupt would delay the next work on the stream.
	Triple = Schedule{Name: "triple", Buffers: 2, Topology: StreamBySize, CopiesFrom: 512 << 10, SharedFrom: 8 << 20,
		Completion: ByAdaptivePolling}

	// Overlapped gives every lane its own stream and fills a second host buffer while the first is in flight. The
	// worker uses it on a CPU.
	Overlapped = Schedule{Name: "overlapped", Buffers: 2}
)
