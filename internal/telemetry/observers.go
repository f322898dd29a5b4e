package telemetry

import "millrace/internal/streams"

// Observers forwards every call to several observers, in order.
type Observers []streams.Observer

var _ streams.Observer = Observers(nil)

// BatchDone implements streams.Observer.
func (o Observers) BatchDone(r *streams.Record) {
	for _, observer := range o {
		observer.BatchDone(r)
	}
}

// DeviceError implements streams.Observer.
func (o Observers) DeviceError(deviceID, kind string) {
	for _, observer := range o {
		observer.DeviceError(deviceID, kind)
	}
}
