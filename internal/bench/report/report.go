// Package report defines the JSON document that `worker bench --json` writes. Start with Report and Row.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Version is the version of the document that this package writes.
const Version = 1

// Report is one run. All times are seconds, all sizes bytes.
type Report struct {
	Version int       `json:"version"` // 1
	Command string    `json:"command"` // the command line
	Commit  string    `json:"commit"`  // commit of the worker
	Started time.Time `json:"started"`
	Devices []Device  `json:"devices"`
	Rows    []Row     `json:"rows"`
}

// Device is one device that was measured; the fields are those of device.Info.
type Device struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Driver  string `json:"driver,omitempty"`
	Runtime string `json:"runtime,omitempty"`
	Compute string `json:"compute,omitempty"`
	Units   int    `json:"units"`
}

// Row is one row of a table. Fields that don't apply to a row are zero and omitted.
type Row struct {
	Group        string            `json:"group"`             // "schedules"
	Name         string            `json:"name"`              // "triple"
	Device       string            `json:"device"`            // Device.ID; "all" for several together, empty if no device takes part
	Lanes        int               `json:"lanes,omitempty"`   // lanes of the pipeline
	Buffers      int               `json:"buffers,omitempty"` // host buffers per lane
	BatchBytes   int               `json:"batch_bytes,omitempty"`
	Operator     string            `json:"operator,omitempty"`
	PayloadBytes int               `json:"payload_bytes,omitempty"` // for rows that differ in their payloads, not in their batches
	Framing      string            `json:"framing,omitempty"`       // how messages hold records, as MILLRACE_FRAMING names it
	Compression  string            `json:"compression,omitempty"`   // how messages are compressed, as MILLRACE_DECOMPRESS names it
	Batches      int               `json:"batches,omitempty"`       // number of measured batches in all rounds
	Batch        *Spread           `json:"batch_seconds,omitempty"` // wall seconds per batch in steady state: one sample per round
	Stages       map[string]Spread `json:"stage_seconds,omitempty"` // copy_in, compute, copy_out of single batches, from device events
	Figures      []Figure          `json:"figures,omitempty"`       // all other figures
	Skipped      string            `json:"skipped,omitempty"`       // why the row has no figures
}

// Spread is a figure that was measured several times. For a ratio of two rows, Median is the quotient of their medians, and
// Low and High are percentiles of the ratios round by round.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`  // the 10th percentile
	High   float64 `json:"high"` // the 90th
	N      int     `json:"n"`    // samples
}

// Figure is a figure with a name.
type Figure struct {
	Name string `json:"name"` // "speedup over serial"
	Unit string `json:"unit"` // "s", "GB/s", "x", ...; empty for a share or a count
	Spread
}

// Figure returns the row's figure with that name, or false if there is none.
func (r *Row) Figure(name string) (Figure, bool) {
	for _, f := range r.Figures {
		if f.Name == name {
			return f, true
		}
	}
	return Figure{}, false
}

// Write writes the report as indented JSON.
func (r *Report) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write the bench report: %w", err)
	}
	return nil
}
