// The page's data about the worker. All times are nanoseconds on one axis. It is the worker's wall clock, counted from
// a whole minute near the first response, so that the numbers are small enough to be exact in JavaScript.

const STAGES = ["fill", "copy_in", "compute", "copy_out", "publish", "settle"];
const ENGINES = ["copy_in", "compute", "copy_out"];
const ENGINE_STAGE = [1, 2, 3]; // index in STAGES of each engine's stage
const [COPY_IN, COMPUTE, COPY_OUT] = ENGINE_STAGE;

const KEPT_BATCHES = 6000; // over all devices
const KEPT_GAPS = 200;
const SECOND = 1e9;
const MINUTE = 60n * BigInt(SECOND);
const RATE_SPAN = 3 * SECOND, LONGEST_RATE_SPAN = 60 * SECOND; // bounds of the interval for rates and shares
const RATE_BATCHES = 4; // minimum number of batches of a lane that the interval covers, roughly, because counters advance as batches complete
const SPARK_POINTS = 60; // one per second

const model = {
  run: "", // ID of the worker's run; empty before the first response
  cursor: -1, // -1: no response yet
  origin: 0n, // origin of the axis, in Unix nanoseconds
  now: 0, // worker's time of the latest response
  receivedAt: 0, // performance.now() when that response arrived
  devices: [],
  batches: [], // of all devices, in order of arrival
  gaps: [], // intervals with missing batches: {start, end, batches}
  hole: null, // interval between the visible part and later batches, if batches in between were dropped
  condition: { state: "starting", why: "", since: 0 }, // whether the worker accepts payloads, and since when in Unix ms
  feed: { server: "" }, // where payloads come from
  kept: { consumer: "", inputs: 0, why: "" }, // what the input stream must keep: see Kept in trim.go
  states: null, // the states of a stateful operator: see States in state.go; null without one
  job: null, // the work: see Job in job.go; null: nothing is known about it
  cpu: "", // why the CPU computes; empty: a GPU does
};

// take adds a response of /timeline to the model. If the response comes from another worker, take clears the model and
// returns false, and the caller must request everything again.
function take(answer) {
  if (model.run !== "" && model.run !== answer.run) {
    forget();
    return false;
  }
  takeCondition(answer);
  const base = BigInt(answer.base), now = base + BigInt(answer.now);
  if (model.run === "") model.origin = now - (now % MINUTE);
  model.run = answer.run;
  model.cursor = answer.cursor;
  model.now = Number(now - model.origin);
  model.receivedAt = performance.now();
  answer.devices.forEach((d, i) => takeDevice(d, i, base));
  const edge = newestEnd(model.batches);
  const fresh = answer.batches.map(takeBatch);
  if (answer.left_out > 0 && fresh.length > 0) noteGap(edge, fresh, answer.left_out);
  model.batches.push(...fresh);
  for (const b of fresh) {
    model.devices[b.device].batches.push(b);
    place(b);
  }
  dropOld();
  return true;
}

// takeCondition adds the parts of a response that describe the whole worker.
function takeCondition(answer) {
  Object.assign(model, { condition: answer.condition, feed: answer.feed, kept: answer.kept, states: answer.states, job: answer.job, cpu: answer.cpu });
}

function forget() {
  Object.assign(model, { run: "", cursor: -1, devices: [], batches: [], gaps: [], hole: null });
}

function takeDevice(d, i, base) {
  const device = model.devices[i] ?? { batches: [], samples: [], spark: [], slots: new Map(), crowded: new Set() };
  model.devices[i] = device;
  Object.assign(device, { index: i, id: d.id, name: d.name, bounds: d.bounds, sums: d.sums, closed: d.closed, stats: d.stats });
  device.epoch = base + BigInt(d.offset) - model.origin;
  device.samples.push({ at: model.now, sums: d.sums, stats: d.stats });
  while (device.samples.length > 2 && device.samples[1].at <= model.now - LONGEST_RATE_SPAN) device.samples.shift();
  const last = device.spark.at(-1);
  if (!last || model.now - last.at >= SECOND) {
    device.spark.push({ at: model.now, rate: last ? (d.sums.payloads - last.payloads) / ((model.now - last.at) / SECOND) : 0, payloads: d.sums.payloads });
    if (device.spark.length > SPARK_POINTS) device.spark.shift();
  }
}

function takeBatch(b) {
  const start = Number(model.devices[b.device].epoch + BigInt(b.start));
  const stages = b.stages.map((s) => s && { start: start + s[0], end: start + s[1] });
  const happened = stages.filter((s) => s);
  return {
    seq: b.seq, device: b.device, number: b.batch, lane: b.lane, payloads: b.payloads, messages: b.messages, bytes: b.bytes, results: b.result_bytes,
    scratch: b.scratch_bytes, closed: b.closed_by, error: b.error ?? "", stages,
    start, end: happened.reduce((end, s) => Math.max(end, s.end), start), slots: {},
  };
}

// noteGap records that batches are missing between the known ones and the new ones.
function noteGap(edge, fresh, batches) {
  const start = Number.isFinite(edge) ? edge : Math.min(...fresh.map((b) => b.start));
  const end = Math.min(...fresh.map((b) => b.end));
  if (end > start) model.gaps.push({ start, end, batches });
  if (model.gaps.length > KEPT_GAPS) model.gaps.shift();
}

function newestEnd(batches) {
  let newest = -Infinity; // batches arrive almost in order, so the newest is among the last ones
  for (let i = Math.max(0, batches.length - 64); i < batches.length; i++) newest = Math.max(newest, batches[i].end);
  return newest;
}

// dropOld drops the oldest batches, except those that are visible. A paused timeline can stay visible for longer than
// the batches would be kept. The batches missing between the visible part and the rest form a gap too.
function dropOld() {
  const many = model.batches.length - KEPT_BATCHES;
  if (many <= 0) return;
  const { from, to } = pictured();
  const oldest = model.batches[many];
  const kept = (b) => b.seq >= oldest.seq || (b.end > from && b.start < to);
  model.batches = model.batches.filter(kept);
  for (const d of model.devices) d.batches = d.batches.filter(kept);
  model.hole = { start: to, end: Math.max(to, oldest.start), batches: 0 };
}

// Batches that share an engine or a lane at the same time are drawn beside each other, each in a slot of its row. An
// engine has one slot until its batches overlap, and then a slot for each lane. Batches beyond that have no slot, and the
// row shows how many they are.
const LANE_ROW_SLOTS = 6;
const LEAST_ENGINE_SLOTS = 4;
const NO_SLOT = -1;

// place assigns the slots of a batch once, because a bar that moved between slots would be hard to follow.
function place(b) {
  const device = model.devices[b.device];
  ENGINES.forEach((name, e) => placeOnEngine(device, b, name, ENGINE_STAGE[e]));
  b.slots.lane = freeSlot(device, "lane " + b.lane, b, slotOrder(LANE_ROW_SLOTS, 0));
}

// placeOnEngine puts a batch into the slot of its lane once batches on the engine have overlapped. Batches of a lane
// follow each other, and first come, first served would waste slots, because batches don't arrive in the order of their
// spans.
function placeOnEngine(device, b, name, stage) {
  const span = b.stages[stage], most = Math.max(device.bounds.lanes, LEAST_ENGINE_SLOTS);
  if (!span) return;
  const spread = device.slots.get(name)?.length > 1;
  b.slots[name] = freeSlot(device, name, span, spread ? slotOrder(most, b.lane) : [0]);
  if (spread || b.slots[name] === 0) return;
  device.slots.set(name, Array.from({ length: most }, () => [])); // the first overlap: all bars move, and the row grows
  device.crowded.delete(name);
  for (const o of device.batches) if (o.stages[stage]) o.slots[name] = freeSlot(device, name, o.stages[stage], slotOrder(most, o.lane));
}

// slotOrder returns the slots in the order in which to try them.
function slotOrder(most, preferred) {
  const order = Array.from({ length: most }, (_, i) => i);
  return preferred > 0 && preferred < most ? [preferred, ...order] : order;
}

// freeSlot takes the first slot of a row that is free during a span, or NO_SLOT. A slot is the list of the spans in it,
// which don't overlap, in order of time.
function freeSlot(device, row, span, order) {
  if (!device.slots.has(row)) device.slots.set(row, []);
  const slots = device.slots.get(row);
  for (const i of order) {
    while (slots.length <= i) slots.push([]);
    const at = positionIn(slots[i], span);
    if (at < 0) continue;
    slots[i].splice(at, 0, { start: span.start, end: span.end });
    if (slots[i].length > KEPT_BATCHES) slots[i].shift();
    return i;
  }
  device.crowded.add(row);
  return NO_SLOT;
}

// positionIn returns where a span fits between the spans of a slot, or -1 if it overlaps one of them.
function positionIn(slot, span) {
  let low = 0, high = slot.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (slot[middle].end <= span.start) low = middle + 1;
    else high = middle;
  }
  return low < slot.length && slot[low].start < span.end ? -1 : low;
}

// Rates and shares over the last seconds, from the pipeline's own counters. few is true if no batch completed, so that the shares are unknown.
function recent(device) {
  const last = device.samples.at(-1), length = quantile(device.batches.slice(-50).map((b) => deviceSpan(b).end - deviceSpan(b).start), 0.95) || 0;
  const span = Math.min(Math.max(RATE_SPAN, RATE_BATCHES * length), LONGEST_RATE_SPAN);
  const first = device.samples.findLast((s) => s.at <= last.at - span) ?? device.samples[0];
  const seconds = (last.at - first.at) / SECOND;
  const rate = (name) => (seconds > 0 ? (last.sums[name] - first.sums[name]) / seconds : 0);
  const figures = { payloads: rate("payloads"), bytes: rate("bytes"), busy: NaN, overlap: NaN, several: NaN, engines: [NaN, NaN, NaN], seconds, few: true };
  if (first.stats && last.stats && last.stats.Counted > first.stats.Counted) {
    const up = last.stats.Counted - first.stats.Counted, busy = last.stats.Busy - first.stats.Busy;
    figures.few = false;
    figures.busy = busy / up;
    figures.several = (last.stats.Overlap - first.stats.Overlap) / up;
    figures.overlap = busy > 0 ? (last.stats.Overlap - first.stats.Overlap) / busy : NaN;
    figures.engines = ENGINES.map((_, e) => (last.stats.Engines[e] - first.stats.Engines[e]) / up);
  }
  return figures;
}

// workerNow estimates the worker's current time.
function workerNow() {
  return model.now + (performance.now() - model.receivedAt) * 1e6;
}
