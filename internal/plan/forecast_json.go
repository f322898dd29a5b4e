package plan

import "encoding/json"

// The JSON form of a forecast is meant for programs. Its units are seconds, bytes and bytes per second; shares go from
// 0 to 1.

type forecastJSON struct {
	Device      string           `json:"device"`
	Name        string           `json:"name,omitempty"`
	Operator    string           `json:"operator,omitempty"`
	Model       modelJSON        `json:"model"`
	Predictions []predictionJSON `json:"predictions"`
	Largest     *float64         `json:"largest_error,omitempty"` // of the predictions that have a measured value
	Assumptions []string         `json:"assumptions"`
}

type modelJSON struct {
	Stages         map[string]costJSON `json:"stages"`
	CopyShare      float64             `json:"copy_share"`
	ComputeShare   float64             `json:"compute_share"`
	Dispatch       float64             `json:"dispatch_seconds"`
	DispatchWithin float64             `json:"dispatch_within_seconds"`
	Host           float64             `json:"host_seconds"`
	Completion     float64             `json:"completion_seconds"`
	Synchronize    float64             `json:"synchronize_seconds"`
}

type costJSON struct {
	Latency        float64 `json:"latency_seconds"`
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"` // omitted if the cost doesn't depend on the size
}

type predictionJSON struct {
	Bytes          int      `json:"batch_bytes"`
	Schedule       string   `json:"schedule"`
	Lanes          int      `json:"lanes"`
	Buffers        int      `json:"buffers"`
	Seconds        float64  `json:"batch_seconds"`
	BytesPerSecond float64  `json:"bytes_per_second"`
	Bottleneck     string   `json:"bottleneck"`
	Busy           float64  `json:"busy"`
	Knee           bool     `json:"knee,omitempty"`
	Measured       *float64 `json:"measured_batch_seconds,omitempty"`
	Error          *float64 `json:"error,omitempty"`
	Fitted         bool     `json:"fitted,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (o Forecast) MarshalJSON() ([]byte, error) {
	out := forecastJSON{
		Device: o.Workload.Device, Name: o.Workload.Name, Operator: o.Workload.Operator, Model: o.Fitted.json(),
		Assumptions: append([]string{}, o.Fitted.Assumptions...),
	}
	for _, p := range o.Predictions {
		out.Predictions = append(out.Predictions, p.json())
	}
	if worst, some := o.Worst(); some {
		e := worst.Error()
		out.Largest = &e
	}
	return json.Marshal(out)
}

func (f *Fitted) json() modelJSON {
	m := modelJSON{
		Stages: map[string]costJSON{}, CopyShare: f.CopyShare, ComputeShare: f.ComputeShare,
		Dispatch: f.Dispatch.Seconds(), DispatchWithin: f.DispatchWithin.Seconds(),
		Host: f.Host.Seconds(), Completion: f.Completion.Seconds(), Synchronize: f.Synchronize.Seconds(),
	}
	for i, c := range f.Stages {
		m.Stages[deviceStages[i].String()] = costJSON{c.Latency.Seconds(), c.BytesPerSecond}
	}
	return m
}

func (p Prediction) json() predictionJSON {
	out := predictionJSON{
		Bytes: p.Bytes, Schedule: p.Schedule, Lanes: p.Lanes, Buffers: p.Buffers, Seconds: p.Seconds,
		BytesPerSecond: p.BytesPerSecond(), Bottleneck: p.Bottleneck, Busy: p.Busy, Knee: p.Knee, Fitted: p.Fitted,
	}
	if e := p.Error(); p.Measured > 0 {
		out.Measured, out.Error = &p.Measured, &e
	}
	return out
}
