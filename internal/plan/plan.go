// Package plan predicts how long a schedule takes, without a GPU. It contains no formula for a pipeline: it runs the
// worker's own scheduling code, package streams, on the virtual clock of package sim.
//
// The subcommand "worker plan" uses it. For textbook plans start reading with textbook.go, for forecasts with fit.go.
//
// # Textbook plans
//
// Textbook runs batches whose three stages take a given number of units each, first one after another and then
// overlapped, and returns the time slots of both schedules. It does the same with one payload that is cut into chunks.
//
// # Plans from measurements
//
// Load reads stage times from a bench report or a trace, Fit creates a model from them, and Predict runs the model for
// other lane counts and batch sizes. This is the model of a batch of b bytes:
//
//   - Copy in, compute and copy out each take a latency plus b divided by a rate, alone on the device. Both values come
//     from a least-squares fit of relative errors to the medians of each batch size with one batch on the device at a
//     time. An event can only be recorded late, so of several medians the smallest is used.
//   - Each engine serves one batch at a time. Kernels of several lanes share the multiprocessors, so two at once are no
//     faster than one after the other.
//   - A copy keeps a share of its speed while a copy in the other direction runs (copy share), and a kernel keeps a share
//     of its speed while a copy runs (compute share).
//   - An engine starts a stage some time after the previous stage ended on another engine, or after the submission. Work
//     of other lanes hides that delay. Part of it lies between the stages (dispatch) and part of it is included in the
//     measured stage times (dispatch within).
//   - The host needs some time for each submission (host), notices a completion some time after it happens (completion),
//     and returns from a synchronization some time after the work has ended (synchronize).
//
// The dispatch, the shares and the host time come from the rows with one lane and two buffers and from the rows with
// the most lanes, for each batch size. They are fitted with least squares of relative errors over runs of the model.
// The host time is fitted only if the other parameters leave an error of more than 1 %. The model slows no stage more
// than its median in the widest row shows. The other latencies come from rows with one batch at a time, where nothing
// hides them. One lane with one buffer shows submission and completion. The serial schedule also shows three
// synchronizations. All other rows are predicted, not fitted. If the file lacks data, the model makes assumptions, and
// the forecast lists all of them.
package plan
