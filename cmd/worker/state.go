package main

import (
	"log/slog"

	"millrace/internal/config"
	"millrace/internal/device"
	"millrace/internal/ingest/lease"
	"millrace/internal/ingest/topology"
	"millrace/internal/memory"
)

// openState reserves the memory for the states of a stateful operator. Without such an operator, it does nothing.
func (a *app) openState() (err error) {
	partition := partitionState(a.cfg, a.devices)
	if a.state, err = stateSettings(a.cfg, a.memory, a.devices, partition); err != nil {
		return usageError{err}
	}
	a.states = stateSizes(a.cfg, a.state, partition.Device, len(a.devices))
	return nil
}

// stateSettings reserves memory for the states of a stateful operator, and returns their settings. It returns nil without such an
// operator. partition is the memory of one partition's state. Call it after the pipelines on the devices are admitted. The devices may be
// closed.
func stateSettings(cfg *config.Config, budget *memory.Process, devices []device.Device, partition device.StateMemory) (*lease.StateOptions, error) {
	s := stateOptions(cfg)
	if s == nil {
		return nil, nil
	}
	if devices[0].Info().Kind != "cuda" {
		err := budget.AdmitStates(s.Bytes)
		s.Bytes = budget.States
		return s, err
	}
	if s.Bytes == 0 {
		s.Bytes = devices[0].Info().Memory / 2
		for _, d := range devices[1:] {
			s.Bytes = min(s.Bytes, d.Info().Memory/2)
		}
	}
	states := int64(cfg.Partitions)
	if partition.Device > 0 {
		states = min(states, s.Bytes/partition.Device*int64(len(devices)))
	}
	return s, budget.AdmitPinnedStates(states * partition.Pinned)
}

// stateOptions returns the configured settings for the states of a stateful operator. It returns nil without such an operator.
func stateOptions(cfg *config.Config) *lease.StateOptions {
	if cfg.Stateful() == nil {
		return nil
	}
	return &lease.StateOptions{Operator: cfg.Stateful(), Records: cfg.State.Records, Bytes: int64(cfg.State.Bytes), Begin: cfg.State.Lost == "begin", Standby: cfg.State.Standby}
}

// partitionState returns the memory of one partition's state on the device that needs the most memory. It is zero without a stateful
// operator, or if the size is unknown.
func partitionState(cfg *config.Config, devices []device.Device) (most device.StateMemory) {
	op := cfg.Stateful()
	if op == nil {
		return most
	}
	size := device.StateSize{Records: cfg.State.Records, Batch: min(cfg.BatchPayloads, cfg.State.Records)}
	for _, d := range devices {
		n, err := d.StateBytes(op.Name(), op.Kernel().Params(), size)
		if err != nil { // the creation of a state returns the same error
			slog.Debug("the size of a state is unknown", "device", d.Info().ID, "error", err)
			continue
		}
		most = device.StateMemory{Device: max(most.Device, n.Device), Pinned: max(most.Pinned, n.Pinned)}
	}
	return most
}

// stateSizes returns the sizes of the states for the inspection of streams. s is nil without a stateful operator. partition is the memory
// of one partition's state.
func stateSizes(cfg *config.Config, s *lease.StateOptions, partition int64, devices int) topology.States {
	if s == nil {
		return topology.States{}
	}
	return topology.States{Partition: partition, Memory: s.Bytes, Devices: int64(devices), Log: logBytes(cfg)}
}

// rowBytes is the assumed size of a record in the log besides its keys: the log's row, and the record's share of headers.
const rowBytes = 12

// logBytes returns the maximum size of the log of one partition's state: the keys of the records of two generations.
func logBytes(cfg *config.Config) int64 {
	return 2 * int64(cfg.State.Records) * int64(cfg.Stateful().Kernel().Stride()+rowBytes)
}
