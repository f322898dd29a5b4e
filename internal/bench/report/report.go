// Package report defines the JSON document that `worker bench --json` writes. Start with Report and Row.
package report

import "time"

// Version is the version of the document that this package writes.
const Version = 1

// Report is the report of one run. All times are in seconds and all sizes in bytes.
type Report struct {
	Version int       `json:"version"` // version of the document
	Command string    `json:"command"` // command line
	Commit  string    `json:"commit"`  // commit of the worker
	Started time.Time `json:"started"`
	Devices []Device  `json:"devices"`
	Rows    []Row     `json:"rows"`
}

// Device is a measured device. Its fields have the same meaning as those of device.Info.
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
	Group        string            `json:"group"`             // name of the suite, such as "schedules"
	Name         string            `json:"name"`              // name of the row, such as "triple"
	Device       string            `json:"device"`            // Device.ID; "all" for several devices, empty if the row uses none
	Lanes        int               `json:"lanes,omitempty"`   // lanes of the pipeline
	Buffers      int               `json:"buffers,omitempty"` // host buffers per lane
	BatchBytes   int               `json:"batch_bytes,omitempty"`
	Operator     string            `json:"operator,omitempty"`
	PayloadBytes int               `json:"payload_bytes,omitempty"` // size of payloads, only in rows that vary it
	Streams      int               `json:"streams,omitempty"`       // number of input streams, only in rows that vary it
	Framing      string            `json:"framing,omitempty"`       // framing of messages, a value of MILLRACE_FRAMING
	Compression  string            `json:"compression,omitempty"`   // compression of messages, a value of MILLRACE_DECOMPRESS
	Field        string            `json:"field,omitempty"`         // member of each JSON record that operators process, a value of MILLRACE_FIELD
	Results      string            `json:"results,omitempty"`       // format of results, a value of MILLRACE_RESULT_FORMAT
	Filter       string            `json:"filter,omitempty"`        // condition of the records in results, a value of MILLRACE_FILTER
	Batches      int               `json:"batches,omitempty"`       // number of measured batches in all rounds
	Batch        *Spread           `json:"batch_seconds,omitempty"` // wall seconds per batch in steady state, one sample per round
	Stages       map[string]Spread `json:"stage_seconds,omitempty"` // times of copy_in, compute and copy_out of single batches, from device events
	Figures      []Figure          `json:"figures,omitempty"`       // all other figures
	Skipped      string            `json:"skipped,omitempty"`       // reason why the row has no figures
}

// Spread is the distribution of a figure that was measured several times. For a ratio of two rows, Median is the
// quotient of their medians, and Low and High are percentiles of the ratios of single rounds.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`  // the 10th percentile
	High   float64 `json:"high"` // the 90th percentile
	N      int     `json:"n"`    // number of samples
}

// Figure is a figure of a row with its name and unit.
type Figure struct {
	Name string `json:"name"` // name, such as "speedup over serial"
	Unit string `json:"unit"` // "s", "GB/s", "x", ...; empty for a share or a count
	Spread
}

// Figure returns the row's figure with the given name, or false if the row has no such figure.
func (r *Row) Figure(name string) (Figure, bool) {
	for _, f := range r.Figures {
		if f.Name == name {
			return f, true
		}
	}
	return Figure{}, false
}
