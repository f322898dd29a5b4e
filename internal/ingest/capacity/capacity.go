// Package capacity computes the number of payloads that a worker can have in flight, which means delivered and not yet
// acknowledged. Packages pull and inflight use its bounds. The worker command derives the default of the consumer's
// MaxAckPending from them. The chart's tests compare helm/millrace/templates/_window.tpl with this package.
package capacity

const (
	// SlotsPerLane is the number of batches of a lane that can be filling or on the device (streams.Schedule.Buffers).
	SlotsPerLane = 2

	// BatchesPerSlot is the number of batches that may be in flight, from pull to acknowledgement, per batch that can be on a
	// device. Publishing a batch takes milliseconds, and its time on the device is a fraction of a millisecond. So most batches
	// in flight are being published. With fewer batches the device would wait for the server.
	BatchesPerSlot = 8

	// FullPerSlot is the number of full batches per slot that fit into memory: one on the device and one being published.
	FullPerSlot = 2

	// Requests is the number of pull requests that are pending at the server per consumer. With two requests, the server can
	// already serve the second while the last messages of the first are in transit.
	Requests = 2

	// RequestMessages is the maximum number of messages per pull request.
	RequestMessages = 4096

	// Queued is the maximum number of a consumer's deliveries that wait between the pull and the batchers.
	Queued = 256
)

// Worker holds the settings that determine the number of payloads in flight.
type Worker struct {
	Devices       int
	Lanes         int // per device
	BatchPayloads int
	Consumers     int // 1 with shared delivery, the number of partitions with exclusive delivery
}

// InFlight returns the largest number of payloads that can be in flight: in batches, in queues, and on their way from the server.
func (w Worker) InFlight() int {
	return BatchesPerSlot*w.slots()*w.BatchPayloads + w.Consumers*(Requests*RequestMessages+Queued)
}

// Full returns the number of payloads that must be in flight for full batches: one on the device and one being published per
// slot.
func (w Worker) Full() int { return FullPerSlot * w.slots() * w.BatchPayloads }

// MaxAckPending returns the default of the consumer's MaxAckPending: twice Full.
func (w Worker) MaxAckPending() int { return 2 * w.Full() }

// slots returns the number of batches that can be filling or on devices.
func (w Worker) slots() int { return SlotsPerLane * w.Devices * w.Lanes }
