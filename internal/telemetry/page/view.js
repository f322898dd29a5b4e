// The visible interval. A long window follows the clock. At the speed of the clock a short window would be a blur, so
// it is shown in slow motion: a shot of a few seconds moves over batches that are already known, and then the next shot
// begins.

const WINDOWS = [2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].map((ms) => ms * 1e6);
const REAL_TIME = 1 * SECOND; // windows of at least this length follow the clock
const SHOT = 6; // seconds in which a shot moves by one window
const STILL = 2; // seconds between pictures if the user prefers reduced motion
const IDLE_AFTER = 1.5 * SECOND, WAITING_AFTER = 5 * SECOND; // time without a new batch
const AUTO_BATCHES = 8; // number of batches on a lane and its engines in the automatic window
const MARGIN = 0.02; // share of the window that stays free after the newest batch

const view = {
  window: WINDOWS[4],
  auto: true,
  paused: false,
  end: NaN, // end of the visible interval
  shot: { from: NaN, to: NaN, began: 0 },
};

const stillness = matchMedia("(prefers-reduced-motion: reduce)");

// pictured returns the interval of the current shot, or the visible interval.
function pictured() {
  const to = Number.isFinite(view.shot.to) ? view.shot.to : view.end;
  const from = Number.isFinite(view.shot.to) ? view.shot.from : view.end;
  return { from: from - view.window, to };
}

// quantile returns a quantile of unordered numbers, or NaN if there are none.
function quantile(values, q) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : NaN;
}

// lastKnown returns the latest time for which all batches are known.
function lastKnown() {
  const way = quantile(model.batches.slice(-200).map((b) => b.end - deviceSpan(b).start), 0.95);
  return Math.min(lastMoment(), workerNow() - (Number.isFinite(way) ? way : 0));
}

// lastMoment returns the end of the picture if no more batches arrive. It is after the newest batch, but close enough
// to that batch's engine stages that they stay visible after a slow publish.
function lastMoment() {
  const onEngines = model.batches.slice(-64).reduce((end, b) => Math.max(end, deviceSpan(b).end), -Infinity);
  return Math.min(newestEnd(model.batches), onEngines + view.window / 2) + view.window * MARGIN;
}

// deviceSpan returns a batch's time on the engines, or its whole time if it did not reach them.
function deviceSpan(b) {
  const on = ENGINE_STAGE.map((s) => b.stages[s]).filter((s) => s);
  return on.length ? { start: on[0].start, end: on.at(-1).end } : b;
}

// idleSince returns when the last batch ended if that was long ago, or NaN while batches arrive.
function idleSince() {
  const newest = newestEnd(model.batches);
  return workerNow() - newest > IDLE_AFTER && !inFlight() ? newest : NaN;
}

// waitingSince returns when the last batch ended if that was long ago although batches are in flight, or NaN. The batches wait for the
// device or for the server, and the timeline repeats known batches.
function waitingSince() {
  const newest = newestEnd(model.batches);
  return workerNow() - newest > WAITING_AFTER && inFlight() ? newest : NaN;
}

function inFlight() {
  return model.devices.some((d) => d.stats && d.stats.Lanes.InFlight > 0);
}

// advance moves the view to its position at the current time.
function advance() {
  if (view.paused || model.batches.length === 0) return;
  if (view.auto && (!Number.isFinite(view.end) || shotIsOver())) setWindow(autoWindow());
  if (Number.isFinite(idleSince())) {
    view.end = lastMoment();
    view.shot.to = NaN;
  } else if (view.window >= REAL_TIME) {
    view.end = lastKnown();
  } else {
    glide();
  }
}

function shotIsOver() {
  return !Number.isFinite(view.shot.to) || performance.now() - view.shot.began > (stillness.matches ? STILL : SHOT) * 1000;
}

function glide() {
  if (shotIsOver()) {
    const to = lastKnown(), oldest = model.batches[0].start;
    view.shot = { from: Math.max(to - view.window, Math.min(oldest + view.window, to)), to, began: performance.now() };
  }
  const { from, to, began } = view.shot;
  const done = stillness.matches ? 1 : Math.min((performance.now() - began) / 1000 / SHOT, 1);
  view.end = from + (to - from) * done;
}

// autoWindow returns the shortest window that can show several consecutive batches.
function autoWindow() {
  const newest = model.batches.slice(-200);
  const times = newest.map((b) => deviceSpan(b).end - deviceSpan(b).start);
  const starts = newest.map((b) => deviceSpan(b).start).sort((a, b) => a - b);
  const apart = starts.length > 1 ? (starts.at(-1) - starts[0]) / (starts.length - 1) : 0;
  // If batches arrive only occasionally, show one batch instead of several with gaps in between.
  const wanted = Math.max(2 * quantile(times, 0.5), AUTO_BATCHES * Math.min(apart, 2 * quantile(times, 0.5)));
  return WINDOWS.find((w) => w >= wanted) ?? WINDOWS.at(-1);
}

// setWindow keeps the middle of the view in place while the view is paused.
function setWindow(length) {
  if (view.paused) view.end += (length - view.window) / 2;
  if (length !== view.window) view.shot.to = NaN;
  view.window = length;
}

// pace describes how the timeline moves.
function pace() {
  if (view.paused) return "paused";
  if (Number.isFinite(idleSince())) return "the last busy moment";
  const late = duration(Math.max(workerNow() - view.end, 0)) + " behind";
  if (view.window >= REAL_TIME) return "live, " + late;
  if (stillness.matches) return "a new picture every " + STILL + " s, " + late;
  return "slow motion, 1 : " + count((SHOT * SECOND) / view.window) + ", " + late;
}

// clockTime formats a time of the axis as wall-clock time with milliseconds.
function clockTime(at) {
  const ms = Number(model.origin / 1000000n) + at / 1e6;
  const time = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  return two(time.getHours()) + ":" + two(time.getMinutes()) + ":" + two(time.getSeconds()) + "." + String(time.getMilliseconds()).padStart(3, "0");
}

// wallClock formats a Unix time in milliseconds as a time of the day, with the date if that is not today.
function wallClock(ms) {
  const time = new Date(ms), two = (n) => String(n).padStart(2, "0");
  const clock = two(time.getHours()) + ":" + two(time.getMinutes()) + ":" + two(time.getSeconds());
  return time.toDateString() === new Date().toDateString() ? clock : time.getFullYear() + "-" + two(time.getMonth() + 1) + "-" + two(time.getDate()) + " " + clock;
}
