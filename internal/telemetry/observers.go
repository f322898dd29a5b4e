package telemetry

import (
	"millrace/internal/ingest/inflight"
	"millrace/internal/streams"
)

// Observer receives the errors of devices and the records of batches.
type Observer interface {
	streams.Observer
	inflight.RecordObserver
}

// Observers forwards every call to several observers, in order.
type Observers []Observer

var _ Observer = Observers(nil)

// BatchDone implements inflight.RecordObserver.
func (o Observers) BatchDone(r *inflight.Record) {
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
