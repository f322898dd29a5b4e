package main

import (
	"errors"

	"millrace/internal/device"
	"millrace/internal/streams"
)

// refusedHere says whether an error is an argument that Millrace has refused. One that the device refuses has a code of
// the device, and is not for the user to set right.
func refusedHere(err error) bool {
	var e *device.Error
	return errors.As(err, &e) && errors.Is(e, device.ErrInvalid) && e.Code == 0
}

// sayReady logs what a pipeline runs on.
func (p *plant) sayReady(info device.Info, pipe *streams.Pipeline) {
	scratch := "pool"
	if why := pipe.ScratchInstead(); why != nil {
		scratch = "preallocated"
		p.log.Warn("the device gives no memory pool: scratch is preallocated, a piece of the largest size for each lane",
			"device", info.ID, "reason", why)
	}
	p.log.Info("device ready", "device", info.ID, "name", info.Name, "lanes", p.cfg.Lanes, "batch_bytes", p.cfg.BatchBytes,
		"batch_payloads", p.cfg.BatchPayloads, "scratch", scratch, "numa_node", info.NUMANode)
}
