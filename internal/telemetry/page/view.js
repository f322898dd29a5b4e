// Which stretch of time is shown. A long window follows the clock. A short one would be a blur at the pace of the
// clock: it is shown in slow motion, a shot of some seconds that glides over work already known, and then the next.

const WINDOWS = [2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].map((ms) => ms * 1e6);
const REAL_TIME = 1 * SECOND; // windows at least so long follow the clock
const SHOT = 6; // seconds that a shot takes to glide by one window
const STILL = 2; // seconds between pictures where motion is not wanted
const IDLE_AFTER = 1.5 * SECOND; // without a new batch
const AUTO_BATCHES = 8; // that the automatic window shows on a lane and its engines
const MARGIN = 0.02; // of the window, behind the newest batch

const view = {
  window: WINDOWS[4],
  auto: true,
  paused: false,
  end: NaN, // of what is shown
  shot: { from: NaN, to: NaN, began: 0 },
};

const stillness = matchMedia("(prefers-reduced-motion: reduce)");

// pictured is the stretch that the present shot glides over, or that is shown.
function pictured() {
  const to = Number.isFinite(view.shot.to) ? view.shot.to : view.end;
  const from = Number.isFinite(view.shot.to) ? view.shot.from : view.end;
  return { from: from - view.window, to };
}

// quantile of numbers that are not in order; NaN of none.
function quantile(values, q) {
  const sorted = values.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] : NaN;
}

// lastKnown is the latest moment of which all is known: batches on the engines then have reported since.
function lastKnown() {
  const way = quantile(model.batches.slice(-200).map((b) => b.end - deviceSpan(b).start), 0.95);
  return Math.min(lastMoment(), workerNow() - (Number.isFinite(way) ? way : 0));
}

// lastMoment is where the picture ends when nothing comes any more: behind the newest batch, but not so far behind its
// work on the engines, which a slow publish can be, that this is out of sight.
function lastMoment() {
  const onEngines = model.batches.slice(-64).reduce((end, b) => Math.max(end, deviceSpan(b).end), -Infinity);
  return Math.min(newestEnd(model.batches), onEngines + view.window / 2) + view.window * MARGIN;
}

// deviceSpan is a batch's time on the engines, or all of it if it never got there.
function deviceSpan(b) {
  const on = ENGINE_STAGE.map((s) => b.stages[s]).filter((s) => s);
  return on.length ? { start: on[0].start, end: on.at(-1).end } : b;
}

// idleSince is when the last batch ended if that was long ago; NaN while batches come.
function idleSince() {
  const newest = newestEnd(model.batches);
  return workerNow() - newest > IDLE_AFTER && !inFlight() ? newest : NaN;
}

function inFlight() {
  return model.devices.some((d) => d.stats && d.stats.lanes.in_flight > 0);
}

// advance moves the view to where it is at this moment.
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

// autoWindow is the shortest window that has room for several batches one after another.
function autoWindow() {
  const newest = model.batches.slice(-200);
  const times = newest.map((b) => deviceSpan(b).end - deviceSpan(b).start);
  const starts = newest.map((b) => deviceSpan(b).start).sort((a, b) => a - b);
  const apart = starts.length > 1 ? (starts.at(-1) - starts[0]) / (starts.length - 1) : 0;
  // Where work comes in now and then, one batch is more to see than several with nothing in between.
  const wanted = Math.max(2 * quantile(times, 0.5), AUTO_BATCHES * Math.min(apart, 2 * quantile(times, 0.5)));
  return WINDOWS.find((w) => w >= wanted) ?? WINDOWS.at(-1);
}

// setWindow keeps what is in the middle there, if the view stands still.
function setWindow(length) {
  if (view.paused) view.end += (length - view.window) / 2;
  if (length !== view.window) view.shot.to = NaN;
  view.window = length;
}

// pace says in words how the picture moves.
function pace() {
  if (view.paused) return "held";
  if (Number.isFinite(idleSince())) return "the last busy moment";
  if (view.window >= REAL_TIME) return "live, " + duration(Math.max(workerNow() - view.end, 0)) + " behind";
  if (stillness.matches) return "a new picture every " + STILL + " s";
  return "slow motion, 1 : " + count((SHOT * SECOND) / view.window);
}

// clockTime writes a moment of the axis as the wall clock's, to the millisecond.
function clockTime(at) {
  const ms = Number(model.origin / 1000000n) + at / 1e6;
  const time = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  return two(time.getHours()) + ":" + two(time.getMinutes()) + ":" + two(time.getSeconds()) + "." + String(time.getMilliseconds()).padStart(3, "0");
}
