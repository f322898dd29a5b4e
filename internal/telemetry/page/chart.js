// The layout of a device's timeline: the rows from top to bottom, and the bars of the visible batches in each row.
// Lengths are in CSS pixels.

const AXIS_HEIGHT = 22, ROW_GAP = 6, LEVEL_HEIGHT = 18, GROUP_GAP = 14;
const LEAST_BAR = 0.75; // adjacent bars that are narrower are drawn as one
const LEAST_SEEN = 1.5; // minimum width of a drawn bar
const ENGINE_SLOTS = [26, 16, 13, 12, 11, 10, 9, 9]; // height of a slot by number of slots; 4 to 8 beyond that
const LANE_SLOTS = [20, 13, 11, 10, 9, 9];
const MORE_HEIGHT = 12; // the part of a row for the batches that have no slot

// rowsOf returns a device's rows: the number of busy engines, the engines, and the lanes.
function rowsOf(device) {
  const rows = [];
  let y = AXIS_HEIGHT + 4;
  const add = (name, label, kind, slots, slotHeight, gap) => {
    const more = kind !== "strip" && crowded(device, name) ? MORE_HEIGHT : 0;
    rows.push({ name, label, kind, slots, slotHeight, y, height: slots * slotHeight + more });
    y += slots * slotHeight + more + gap;
  };
  add("busy", "at once", "strip", ENGINES.length, LEVEL_HEIGHT, GROUP_GAP);
  for (const name of ENGINES) {
    const slots = slotsOf(device, name);
    add(name, stageName(name), "engine", slots, ENGINE_SLOTS[slots - 1] ?? Math.max(4, Math.floor(72 / slots) + 2), name === ENGINES.at(-1) ? GROUP_GAP : ROW_GAP);
  }
  for (let lane = 0; lane < laneCount(device); lane++) {
    const slots = slotsOf(device, "lane " + lane);
    add("lane " + lane, "lane " + lane, "lane", slots, LANE_SLOTS[slots - 1], ROW_GAP);
  }
  return { rows, height: y };
}

function slotsOf(device, row) {
  return Math.max(1, device.slots.get(row)?.length ?? 0);
}

// crowded reports whether a batch of the row has no slot.
function crowded(device, row) {
  return device.crowded.has(row);
}

function laneCount(device) {
  return device.batches.slice(-100).reduce((n, b) => Math.max(n, b.lane + 1), device.bounds.lanes);
}

// barsOf returns the bars of a device's batches between two times: each engine stage in the engine's row, and all
// stages in the lane's row. Batches without a slot are added up to bars that count them.
function barsOf(device, rows, area, from, to) {
  const bars = [];
  const byName = new Map(rows.map((r) => [r.name, r]));
  const drawn = new Map(); // by row and slot: position of the last bar that is too narrow to be visible alone
  const without = new Map(); // by row: the spans of batches without a slot
  const scale = area.width / (to - from);
  const put = (row, y, height, span, rest) => {
    const left = Math.max(area.x + (span.start - from) * scale, area.x);
    const right = Math.min(area.x + (span.end - from) * scale, area.x + area.width);
    bars.push({ row, x: left, y, width: Math.max(right - left, LEAST_BAR), height, start: span.start, end: span.end, ...rest });
  };
  const add = (row, slot, b, stage) => {
    const span = b.stages[stage];
    if (!row || !span || span.end < from || span.start > to) return;
    if (slot === NO_SLOT) {
      if (!without.has(row)) without.set(row, []);
      without.get(row).push({ start: span.start, end: span.end, batch: b, stage });
      return;
    }
    if ((span.end - span.start) * scale < LEAST_BAR) {
      const key = row.name + "/" + slot + "/" + stage, at = Math.round(area.x + (span.start - from) * scale);
      if (drawn.get(key) === at) return;
      drawn.set(key, at);
    }
    put(row, row.y + slot * row.slotHeight, row.slotHeight - 1, span, { batch: b, stage });
  };
  for (const b of device.batches) {
    if (b.end < from || b.start > to) continue;
    ENGINES.forEach((name, e) => add(byName.get(name), b.slots[name] ?? 0, b, ENGINE_STAGE[e]));
    STAGES.forEach((_, stage) => add(byName.get("lane " + b.lane), b.slots.lane, b, stage));
  }
  for (const [row, spans] of without) {
    for (const group of together(spans)) {
      put(row, row.y + row.slots * row.slotHeight, MORE_HEIGHT - 1, group, { batch: group.batches[0], stage: group.stage, more: group.batches });
    }
  }
  return bars;
}

// together joins the spans that touch: each group has the time that they cover and their batches.
function together(spans) {
  const groups = [];
  for (const s of spans.sort((a, b) => a.start - b.start)) {
    const last = groups.at(-1);
    if (last && s.start <= last.end) {
      last.end = Math.max(last.end, s.end);
      if (!last.batches.includes(s.batch)) last.batches.push(s.batch);
    } else {
      groups.push({ start: s.start, end: s.end, stage: s.stage, batches: [s.batch] });
    }
  }
  return groups;
}

// busyAtOnce counts the busy engines of a device between two times. It returns intervals with a constant count above 0,
// in order of time.
function busyAtOnce(device, from, to) {
  const edges = [];
  ENGINES.forEach((_, e) => {
    for (const s of unionOf(device.batches, ENGINE_STAGE[e], from, to)) edges.push({ at: s.start, step: 1 }, { at: s.end, step: -1 });
  });
  edges.sort((a, b) => a.at - b.at);
  const stretches = [];
  let before = NaN, engines = 0;
  for (const edge of edges) {
    if (engines > 0 && edge.at > before) stretches.push({ start: before, end: edge.at, engines });
    engines += edge.step;
    before = edge.at;
  }
  return stretches;
}

// unionOf returns when a stage of any batch ran between two times, as intervals that don't touch.
function unionOf(batches, stage, from, to) {
  const spans = [];
  for (const b of batches) {
    const s = b.stages[stage];
    if (s && s.end > from && s.start < to && s.end > s.start) spans.push({ start: Math.max(s.start, from), end: Math.min(s.end, to) });
  }
  const union = [];
  for (const s of spans.sort((a, b) => a.start - b.start)) {
    const last = union.at(-1);
    if (last && s.start <= last.end) last.end = Math.max(last.end, s.end);
    else union.push(s);
  }
  return union;
}

// barAt returns the bar at a point, or the nearest bar within reach if that bar is too narrow to hit.
function barAt(bars, x, y, reach) {
  let best = null, least = reach;
  for (const b of bars) {
    const dx = Math.max(b.x - x, x - b.x - b.width, 0), dy = Math.max(b.y - y, y - b.y - b.height, 0);
    const away = Math.max(dx, dy * 2);
    if (away < least || (away === 0 && least === 0)) [best, least] = [b, away];
  }
  return best;
}

// ticksOf returns round times between two times, with enough space for their labels.
function ticksOf(from, to, width) {
  const room = Math.max(2, Math.floor(width / 84));
  let step = 1000;
  for (let i = 0; (to - from) / step > room; i++) step *= i % 3 === 1 ? 2.5 : 2;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) ticks.push({ at, label: tickLabel(at, step) });
  return ticks;
}

// tickLabel formats the part of the time that differs between ticks: the seconds, with as many decimals as the step
// needs.
function tickLabel(at, step) {
  const minute = ((at % (60 * SECOND)) + 60 * SECOND) % (60 * SECOND);
  const decimals = step >= SECOND ? 0 : Math.min(9, Math.ceil(-Math.log10(step / SECOND)));
  return (minute / SECOND).toFixed(decimals).padStart(decimals ? decimals + 3 : 2, "0") + " s";
}
