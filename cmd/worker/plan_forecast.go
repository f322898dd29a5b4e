package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/device/sim"
	"millrace/internal/plan"
)

// printForecasts prints a table for each forecast, and then the largest error of all predictions.
func printForecasts(w io.Writer, forecasts []plan.Forecast) error {
	for _, o := range forecasts {
		if err := printModel(w, o); err != nil {
			return err
		}
		if err := console.Table(w, forecastRows(o)); err != nil {
			return err
		}
		if _, err := fmt.Fprint(w, "\n", foot(o), "\n"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, legend, largest(forecasts))
	return err
}

const legend = `knee      the fewest lanes within 2 % of the best rate at that size
fitted    the model is fitted to this measurement; it predicts all others
busy      the share of the time in which the bottleneck has work
`

// printModel prints the fitted model.
func printModel(w io.Writer, o plan.Forecast) error {
	name := o.Workload.Device
	if o.Workload.Name != "" {
		name += " (" + o.Workload.Name + ")"
	}
	if o.Workload.Operator != "" {
		name += ", operator " + o.Workload.Operator
	}
	f := o.Fitted
	_, err := fmt.Fprintf(w, "%s\n\nalone: copy in %s; compute %s; copy out %s\n"+
		"at once: a copy keeps %.0f %% of its speed beside a copy in the other direction, a kernel %.0f %% beside a copy\n"+
		"latencies: dispatch %s between stages and %s within, completion %s, synchronization %s; host %s per submission\n\n",
		name, costText(f.Stages[0]), costText(f.Stages[1]), costText(f.Stages[2]), 100*f.CopyShare, 100*f.ComputeShare,
		console.Time(f.Dispatch), console.Time(f.DispatchWithin), console.Time(f.Completion), console.Time(f.Synchronize), console.Time(f.Host))
	return err
}

// costText formats a cost: "1 us + bytes / 50 GB/s".
func costText(c sim.Cost) string {
	if c.BytesPerSecond == 0 {
		return console.Time(c.Latency)
	}
	return fmt.Sprintf("%s + bytes / %.3g GB/s", console.Time(c.Latency), c.BytesPerSecond/1e9)
}

// forecastRows returns the table of a forecast.
func forecastRows(o plan.Forecast) [][]string {
	rows := [][]string{{"batch", "schedule", "lanes", "buffers", "time per batch", "GB/s", "bottleneck", "busy", "measured", "error", ""}}
	for _, p := range o.Predictions {
		measured, off := "-", "-"
		if p.Error != nil {
			measured, off = microseconds(p.Measured), percent(*p.Error)
		}
		var notes []string
		if p.Knee {
			notes = append(notes, "knee")
		}
		if p.Fitted {
			notes = append(notes, "fitted")
		}
		rows = append(rows, []string{
			config.Size(p.Bytes).String(), p.Schedule, fmt.Sprint(p.Lanes), fmt.Sprint(p.Buffers), microseconds(p.Seconds),
			fmt.Sprintf("%.2f", p.BytesPerSecond/1e9), p.Bottleneck, fmt.Sprintf("%.0f %%", 100*p.Busy), measured, off,
			strings.Join(notes, ", "),
		})
	}
	return rows
}

func microseconds(s float64) string {
	return fmt.Sprintf("%.1f us", s*float64(time.Second/time.Microsecond))
}

func percent(share float64) string {
	if text := fmt.Sprintf("%+.1f %%", 100*share); text != "-0.0 %" && text != "+0.0 %" {
		return text
	}
	return "0.0 %"
}

// foot lists the assumptions of the model.
func foot(o plan.Forecast) string {
	text := ""
	for _, a := range o.Fitted.Assumptions {
		text += "assumed: " + a + "\n"
	}
	return text
}

// largest returns a line with the largest error of all predictions.
func largest(forecasts []plan.Forecast) string {
	var worst plan.Prediction
	found := false
	for _, o := range forecasts {
		p, some := o.Worst()
		if some && (!found || math.Abs(*p.Error) > math.Abs(*worst.Error)) {
			worst, found = p, true
		}
	}
	if !found {
		return "\nThe file has no measured rate to compare with.\n"
	}
	return fmt.Sprintf("\nLargest error: %s (%s batches, %s, %d lanes)\n", percent(*worst.Error), config.Size(worst.Bytes), worst.Schedule, worst.Lanes)
}
