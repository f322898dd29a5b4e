package main

import (
	"fmt"

	"millrace/internal/config"
	"millrace/internal/ingest/lease"
	"millrace/internal/memory"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// unlimitedStates is the memory of states on a CPU if neither MILLRACE_STATE_BYTES nor the limit of the process's memory is known.
const unlimitedStates = 1 << 30

// stateOptions returns the settings of the states of the stateful operator, or nil without one. On a CPU, it reserves their memory in m.
func stateOptions(cfg *config.Config, m *memory.Process, pipes []*streams.Pipeline) (*lease.StateOptions, error) {
	for _, op := range cfg.ParsedOperators() {
		s, ok := op.(operator.Stateful)
		if !ok {
			continue
		}
		o := &lease.StateOptions{
			Operator: s, Records: cfg.State.Records, Bytes: int64(cfg.State.Bytes), Begin: cfg.State.Lost == "begin", Standby: cfg.State.Standby,
		}
		return o, divideStates(o, cfg.Partitions, m, pipes)
	}
	return nil, nil
}

// divideStates sets o.Bytes, if it isn't set, to half of the memory that is left: on a GPU that of the smallest one, and on a CPU that of
// the process.
func divideStates(o *lease.StateOptions, partitions int, m *memory.Process, pipes []*streams.Pipeline) error {
	var needed int64
	for _, p := range pipes {
		each, err := p.StateBytes(o.Operator, o.Records)
		if err != nil {
			return usageError{err}
		}
		needed = max(needed, each*int64(partitions))
	}
	info := pipes[0].Device()
	onCPU := info.Kind != "cuda"
	if o.Bytes == 0 {
		switch o.Bytes = unlimitedStates; {
		case !onCPU:
			o.Bytes = info.Memory / 2
			for _, p := range pipes {
				o.Bytes = min(o.Bytes, p.Device().Memory/2)
			}
		case m.Payloads > 0:
			o.Bytes = m.Payloads
		}
	}
	if !onCPU {
		return nil
	}
	if err := m.Admit(false, 0, min(o.Bytes, needed)); err != nil {
		return usageError{fmt.Errorf("the states of %s: lower MILLRACE_STATE_RECORDS or MILLRACE_STATE_BYTES: %w", o.Operator, err)}
	}
	return nil
}
