package plan

import (
	"time"

	"millrace/internal/streams"
)

// waits is what a batch takes beyond its stages where the host does not hide what it adds, in seconds: dispatch of
// every stage, and the host. What no row shows is negative.
type waits struct {
	serial float64 // submission, three synchronizations and the completion
	single float64 // on one lane with one buffer: submission and completion
}

// synchronizations is how often the host waits for a stage of a serial batch.
const synchronizations = float64(streams.NumEngines)

// fitWaits takes the waits from the rows that show them. host is the time of a submission, 0 if it is not known.
func (f *Fitted) fitWaits(w Workload, host time.Duration) {
	f.waits = waits{
		serial: f.beyond(w, Row.serial),
		single: f.beyond(w, func(r Row) bool { return !r.serial() && r.Schedule.Buffers == 1 }),
	}
	switch {
	case host == 0:
		host = f.likelyHost()
	case f.waits.single < 0 && f.waits.serial >= 0:
		f.assume("What the host adds to a serial batch beyond its submission is taken to be the same for its completion and each " +
			"of its three synchronizations.")
	}
	f.setHost(host)
}

// beyond is what rows of one lane take beyond their stages, in seconds, by least squares of the relative errors of
// their seconds, and at least 0; negative where there are none.
func (f *Fitted) beyond(w Workload, of func(Row) bool) float64 {
	var rest, weights float64
	for _, r := range w.Rows {
		if r.alone() && r.Seconds > 0 && of(r) {
			weight := 1 / (r.Seconds * r.Seconds)
			rest += weight * (r.Seconds - f.sum(r.Bytes))
			weights += weight
		}
	}
	if weights == 0 {
		return -1
	}
	return max(rest/weights, 0)
}

// likelyHost is where the search for the host's time on a submission starts.
func (f *Fitted) likelyHost() time.Duration {
	switch {
	case f.waits.single >= 0:
		f.assume("What the host adds to a batch on one lane with one buffer is taken to be half submission and half completion, " +
			"unless rows with more lanes tell otherwise.")
		return seconds(f.waits.single / 2)
	case f.waits.serial >= 0:
		f.assume("What the host adds to a serial batch is taken to be the same for its submission, its completion and each of " +
			"its three synchronizations, unless rows with more lanes tell otherwise.")
		return seconds(f.waits.serial / (synchronizations + 2))
	}
	f.assume("No row shows what the host adds to a batch: its latencies are taken to be 0.")
	return 0
}

// setHost sets the host's time on a submission, and divides what is left of the waits.
func (f *Fitted) setHost(host time.Duration) {
	f.Host = host
	f.divideWaits()
}

// setDispatch sets the dispatch between stages, likewise.
func (f *Fitted) setDispatch(dispatch time.Duration) {
	f.Dispatch = dispatch
	f.divideWaits()
}

// divideWaits gives the completion and the synchronizations what the waits have beyond dispatch and submission. One
// lane with one buffer shows the completion; without such a row each of a serial batch's waits is as long as the
// others.
func (f *Fitted) divideWaits() {
	known := float64(streams.NumEngines)*f.Dispatch.Seconds() + f.Host.Seconds()
	single, serial := max(f.waits.single-known, 0), max(f.waits.serial-known, 0)
	if f.waits.single >= 0 {
		f.Completion = seconds(single)
		f.Synchronize = seconds(max(serial-single, 0) / synchronizations)
		return
	}
	f.Completion = seconds(serial / (synchronizations + 1))
	f.Synchronize = f.Completion
}
