// Package plan says what a schedule would take before a GPU runs it. The code that schedules is the worker's own,
// package streams, on the virtual clock of package sim: there is no formula of a pipeline here.
//
// # Textbook plans
//
// Textbook runs batches of three stages of so many units each, one after another and overlapped, and gives the
// slots of both schedules. Chunks does so with one payload that is cut into pieces.
//
// # Plans from measurements
//
// Load reads what a bench run or a trace says of stage times, Fit makes a model of it, and Predict runs the model
// for other lane counts and batch sizes. The model of a batch of b bytes:
//
//   - Copy in, compute and copy out each take a latency and b over a rate, alone on the device. Both come from
//     least squares, of relative errors, on the medians of each batch size with one batch on the device at a time.
//     A mark of an event can only come late, so of several medians the least is taken.
//   - Each engine serves one batch at a time. Kernels of several lanes share the multiprocessors, so that two at
//     once are no faster than one after the other.
//   - A copy keeps a share of its speed while one the other way runs (copy share), and a kernel while a copy runs
//     (compute share).
//   - An engine hears of a stage some time after the stage before it ended on another engine, or after it was
//     submitted. Other lanes' work hides that. Some of it lies between the stages (dispatch), some in the times
//     measured for them alone (dispatch within).
//   - The host works for some time on each submission (host), hears of a completion some time after it (completion),
//     and wakes some time after what it synchronizes with (synchronize).
//
// The dispatch, the shares and the host time come from the rows with one lane and two buffers and the rows with most
// lanes, for each batch size, by least squares of relative errors over runs of the model; the host's only where the
// others leave more than 1 % open. No stage is taken to be slowed more than its median in the widest row shows. The
// other latencies come from rows with one batch at a time, where nothing hides them: one lane with one buffer shows
// submission and completion, the serial schedule three synchronizations too. All other rows are predicted, not
// fitted. What the file does not tell is assumed, and every assumption is listed with the forecast.
package plan
