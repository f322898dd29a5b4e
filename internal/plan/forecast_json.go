package plan

import "encoding/json"

// MarshalJSON implements json.Marshaler. The JSON form is meant for programs. Its units are seconds, bytes and bytes per
// second; shares go from 0 to 1.
func (o Forecast) MarshalJSON() ([]byte, error) {
	out := struct {
		Device      string       `json:"device"`
		Name        string       `json:"name,omitempty"`
		Operator    string       `json:"operator,omitempty"`
		Model       modelJSON    `json:"model"`
		Predictions []Prediction `json:"predictions"`
		Largest     *float64     `json:"largest_error,omitempty"` // largest error of the predictions that have a measured value
		Assumptions []string     `json:"assumptions"`
	}{
		Device: o.Workload.Device, Name: o.Workload.Name, Operator: o.Workload.Operator, Model: o.Fitted.json(),
		Predictions: o.Predictions, Assumptions: append([]string{}, o.Fitted.Assumptions...),
	}
	if worst, some := o.Worst(); some {
		out.Largest = worst.Error
	}
	return json.Marshal(out)
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
