package streams

// Schedule is how batches share a device: how many lanes, how many host buffers each, which streams they use
// and when the host waits. It is a value; Serial, DoubleBuffered and Overlapped are the ones people know.
type Schedule struct {
	Name string

	// Lanes fixes the number of lanes; 0 takes Config.Lanes.
	Lanes int

	// Buffers is the number of host buffers a lane has, 1 or 2. With 2, one fills while the device
	// reads the other.
	Buffers int

	// Topology says which streams a lane's work goes to.
	Topology Topology

	// CopiesFrom and SharedFrom are for StreamBySize: batches of so many payload bytes are copied on the streams
	// that lanes share, and computed there too.
	CopiesFrom, SharedFrom int

	// HostWaits makes the host wait after each stage, with a mark before each too. With one lane nothing overlaps
	// then, which is what `worker plan` and `worker bench` compare with (adr/0036).
	HostWaits bool

	// Completion says how the host learns that a batch is finished. The zero value is ByNotify.
	Completion Completion
}

// Completion says how the host learns that a batch is finished.
type Completion uint8

const (
	// ByNotify has the device call the host. No thread waits. A small batch that has the device to itself
	// may be asked about for a while first: see Config.Spin.
	ByNotify Completion = iota

	// ByNapping asks the oldest batch in flight of each queue, and naps in between for a part of the time that batches
	// take: a few calls a batch, and no work for the device.
	ByNapping
)

// Topology says which streams the stages of a batch go to.
type Topology uint8

const (
	// StreamPerLane puts all stages of a lane's batches on the lane's own stream. Lanes overlap because
	// nothing orders their streams.
	StreamPerLane Topology = iota

	// StreamPerStage has one stream for copies in, one for kernels and one for copies out, shared by all
	// lanes. Events order the stages of a batch, and a batch after the one that used its lane before.
	StreamPerStage

	// StreamBySize is StreamPerLane for small batches and StreamPerStage for those from Schedule.SharedFrom on;
	// between Schedule.CopiesFrom and that, copies are in one queue for each direction, where they keep out of
	// each other's way, and kernels on lanes' streams: small ones fill a GPU only several at once.
	StreamBySize
)

var (
	// Serial is no overlap: one lane, one buffer, and the host waits for each stage before the next.
	Serial = Schedule{Name: "serial", Lanes: 1, Buffers: 1, HostWaits: true}

	// DoubleBuffered copies batch i while batch i-1 computes: two host and two device buffers, a stream for each
	// engine, events between them.
	DoubleBuffered = Schedule{Name: "double", Lanes: 2, Buffers: 1, Topology: StreamPerStage, Completion: ByNapping}

	// Triple keeps a GPU's three engines busy at once: large batches follow each other through a stream for each
	// engine, small ones go side by side, and somebody asks now and then for the oldest. It is what the worker runs on
	// a GPU, where the device calling the host, or waking it, would hold up what comes behind.
	Triple = Schedule{Name: "triple", Buffers: 2, Topology: StreamBySize, CopiesFrom: 512 << 10, SharedFrom: 8 << 20,
		Completion: ByNapping}

	// Overlapped keeps every lane in flight on a stream of its own, with a second host buffer filling
	// behind each. It is what the worker runs on a CPU.
	Overlapped = Schedule{Name: "overlapped", Buffers: 2}
)

// Schedules lists the schedules that can be asked for by name.
func Schedules() []Schedule { return []Schedule{Serial, DoubleBuffered, Overlapped, Triple} }
