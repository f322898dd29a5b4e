package plan

import (
	"time"

	"millrace/internal/streams"
)

// waits holds the time per batch, in seconds, that rows need in addition to their stages when nothing hides it: the
// dispatch of every stage and the host's time. A negative value means that no row shows it.
type waits struct {
	serial float64 // submission, three synchronizations and the completion
	single float64 // one lane with one buffer: submission and completion
}

// synchronizations is the number of stages that the host waits for in a serial batch.
const synchronizations = float64(streams.NumEngines)

// fitWaits determines the waits from the rows that show them. The parameter host is the time of a submission, or 0 if
// it is not known.
func (f *Fitted) fitWaits(w Workload, host time.Duration) {
	f.waits = waits{
		serial: f.beyond(w, Row.serial),
		single: f.beyond(w, func(r Row) bool { return !r.serial() && r.Schedule.Buffers == 1 }),
	}
	switch {
	case host == 0:
		host = f.likelyHost()
	case f.waits.single < 0 && f.waits.serial >= 0:
		f.assume("Beyond its submission, the host's time for a serial batch is assumed to be divided equally between its completion " +
			"and its three synchronizations.")
	}
	f.setHost(host)
}

// beyond returns the time per batch that rows of one lane need in addition to their stages, in seconds, by least
// squares of relative errors, and at least 0. It returns a negative value if there are no such rows.
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

// likelyHost returns the initial value of the search for the host's time per submission.
func (f *Fitted) likelyHost() time.Duration {
	switch {
	case f.waits.single >= 0:
		f.assume("The host's time for a batch on one lane with one buffer is assumed to be half submission and half completion, " +
			"unless rows with more lanes show otherwise.")
		return seconds(f.waits.single / 2)
	case f.waits.serial >= 0:
		f.assume("The host's time for a serial batch is assumed to be divided equally between its submission, its completion and its " +
			"three synchronizations, unless rows with more lanes show otherwise.")
		return seconds(f.waits.serial / (synchronizations + 2))
	}
	f.assume("No row shows the host's time for a batch: its latencies are assumed to be 0.")
	return 0
}

// setHost sets the host's time per submission and distributes the rest of the waits.
func (f *Fitted) setHost(host time.Duration) {
	f.Host = host
	f.divideWaits()
}

// setDispatch sets the dispatch between stages and distributes the rest of the waits.
func (f *Fitted) setDispatch(dispatch time.Duration) {
	f.Dispatch = dispatch
	f.divideWaits()
}

// divideWaits assigns the waits without dispatch and submission to the completion and the synchronizations. One lane
// with one buffer shows the completion. Without such a row, all waits of a serial batch count as equally long.
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
