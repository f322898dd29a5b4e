// Package capacity computes how many payloads a worker can have in flight: delivered and not yet acknowledged. Packages pull and
// inflight take their bounds from here. The command derives the consumer's MaxAckPending from it, and the chart's tests compare
// helm/millrace/templates/_window.tpl with it.
package capacity

const (
	// SlotsPerLane is how many batches of a lane can be on the device or fill (streams.Schedule.Buffers).
	SlotsPerLane = 2

	// BatchesPerSlot is how many batches may be between pull and acknowledgement for each that can be on a device.
	// Publishing takes milliseconds where a device takes a fraction of one, so most batches in flight are being
	// published, and with fewer the device would wait for the server.
	BatchesPerSlot = 8

	// FullPerSlot is how many full batches there is memory for, for each that can be on a device: one on it, and one being
	// published.
	FullPerSlot = 2

	// Requests is how many pull requests the server has at once for each consumer, so that it has another one while the end of one is
	// on its way.
	Requests = 2

	// RequestMessages is how many messages a pull request asks for at most.
	RequestMessages = 4096

	// Queued is how many deliveries of a consumer may wait between the pull and the batchers.
	Queued = 256
)

// Worker holds the settings that determine how much a worker can have in flight.
type Worker struct {
	Devices       int
	Lanes         int // per device
	BatchPayloads int
	Consumers     int // 1, or the number of partitions with exclusive delivery
}

// InFlight returns the largest number of payloads that can be in flight: in batches, in queues, and on their way from the server.
func (w Worker) InFlight() int {
	return BatchesPerSlot*w.slots()*w.BatchPayloads + w.Consumers*(Requests*RequestMessages+Queued)
}

// Full returns how many payloads must be in flight so that every batch on a device, and one that is being published for each of
// them, can be full.
func (w Worker) Full() int { return FullPerSlot * w.slots() * w.BatchPayloads }

// MaxAckPending returns the default of the consumer's MaxAckPending: twice Full.
func (w Worker) MaxAckPending() int { return 2 * w.Full() }

// slots returns how many batches can be on devices.
func (w Worker) slots() int { return SlotsPerLane * w.Devices * w.Lanes }
