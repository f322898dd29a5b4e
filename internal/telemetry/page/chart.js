// The layout of a device's timeline: the rows from top to bottom, and the bars of the visible batches in each row.
// Lengths are in CSS pixels.

const AXIS_HEIGHT = 22, ROW_GAP = 6, STRIP_HEIGHT = 14, GROUP_GAP = 12;
const LEAST_BAR = 0.75; // adjacent bars that are narrower are drawn as one
const LEAST_SEEN = 1.5; // minimum width of a drawn bar

// rowsOf returns a device's rows: its engines, the number of busy engines, and its lanes.
function rowsOf(device) {
  const rows = [];
  let y = AXIS_HEIGHT + 4;
  const add = (name, label, kind, slots, slotHeight, gap) => {
    rows.push({ name, label, kind, slots, slotHeight, y, height: slots * slotHeight });
    y += slots * slotHeight + gap;
  };
  for (const name of ENGINES) {
    const slots = slotsOf(device, name);
    add(name, stageName(name), "engine", slots, [26, 16, 13, 12][slots - 1], ROW_GAP);
  }
  add("busy", "at once", "strip", 1, STRIP_HEIGHT, GROUP_GAP);
  for (let lane = 0; lane < laneCount(device); lane++) {
    const slots = slotsOf(device, "lane " + lane);
    add("lane " + lane, "lane " + lane, "lane", slots, [20, 13, 11, 10, 9, 9][slots - 1], ROW_GAP);
  }
  return { rows, height: y };
}

function slotsOf(device, row) {
  return Math.max(1, device.slots.get(row)?.length ?? 0);
}

function laneCount(device) {
  return device.batches.slice(-100).reduce((n, b) => Math.max(n, b.lane + 1), device.bounds.lanes);
}

// barsOf returns the bars of a device's batches between two times: each engine stage in the engine's row, and all
// stages in the lane's row.
function barsOf(device, rows, area, from, to) {
  const bars = [];
  const byName = new Map(rows.map((r) => [r.name, r]));
  const drawn = new Map(); // by row and slot: position of the last bar that is too narrow to be visible alone
  const scale = area.width / (to - from);
  const add = (row, slot, b, stage) => {
    const span = b.stages[stage];
    if (!row || !span || span.end < from || span.start > to) return;
    const left = Math.max(area.x + (span.start - from) * scale, area.x);
    const right = Math.min(area.x + (span.end - from) * scale, area.x + area.width);
    if (right - left < LEAST_BAR) {
      const key = row.name + "/" + slot + "/" + stage, at = Math.round(left);
      if (drawn.get(key) === at) return;
      drawn.set(key, at);
    }
    bars.push({ batch: b, stage, row, x: left, y: row.y + slot * row.slotHeight, width: Math.max(right - left, LEAST_BAR), height: row.slotHeight - 1, ...span });
  };
  for (const b of device.batches) {
    if (b.end < from || b.start > to) continue;
    ENGINES.forEach((name, e) => add(byName.get(name), b.slots[name] ?? 0, b, ENGINE_STAGE[e]));
    STAGES.forEach((_, stage) => add(byName.get("lane " + b.lane), b.slots.lane, b, stage));
  }
  return bars;
}

// busyAtOnce counts the busy engines over time. It returns intervals with a constant count, in order of time.
function busyAtOnce(bars) {
  const edges = [];
  for (const b of bars) {
    if (b.row.kind === "engine") edges.push({ at: b.start, engine: b.row.name, step: 1 }, { at: b.end, engine: b.row.name, step: -1 });
  }
  edges.sort((a, b) => a.at - b.at);
  const depth = Object.fromEntries(ENGINES.map((name) => [name, 0]));
  const stretches = [];
  let before = NaN;
  for (const edge of edges) {
    const engines = ENGINES.filter((name) => depth[name] > 0).length;
    if (engines > 0 && edge.at > before) stretches.push({ start: before, end: edge.at, engines });
    depth[edge.engine] += edge.step;
    before = edge.at;
  }
  return stretches;
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
