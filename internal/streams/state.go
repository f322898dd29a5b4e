package streams

import (
	"millrace/internal/device"
	"millrace/internal/operator"
)

// NewState creates an empty state of an operator on the pipeline's device. A generation has the given number of records. One call of
// State.Apply takes the records of a batch. The caller closes the state before the pipeline's device.
func (p *Pipeline) NewState(op operator.Stateful, records int) (device.State, error) {
	return p.dev.NewState(op.Name(), op.Kernel().Params(), p.stateSize(records))
}

// StateBytes returns the memory that NewState takes, in bytes.
func (p *Pipeline) StateBytes(op operator.Stateful, records int) (int64, error) {
	return p.dev.StateBytes(op.Name(), op.Kernel().Params(), p.stateSize(records))
}

func (p *Pipeline) stateSize(records int) device.StateSize {
	return device.StateSize{Records: records, Batch: min(records, p.BatchPayloads())}
}
