// Draws a device's timeline on its canvas.

const theme = { colours: {} };

// readTheme reads the colours from the style sheet, which has a dark and a light mode.
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "soft", "line", "grid", "card", "sunk", "bad", "one", "two", "three", "band", "gap", "accent", "more", "on-more", ...STAGES, ...STAGES.map((s) => "on-" + s)];
  theme.colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
  theme.font = getComputedStyle(document.body).fontFamily;
}

// paint draws the device between the two times of the view and returns the drawn bars.
function paint(canvas, device) {
  const { rows, height } = rowsOf(device);
  const width = canvas.clientWidth, gutter = width < 600 ? 68 : 84;
  const area = { x: gutter, width: width - gutter - 6, bottom: height - ROW_GAP };
  const context = prepare(canvas, width, height);
  const from = view.end - view.window, to = view.end;
  const bars = barsOf(device, rows, area, from, to);
  const place = (at) => area.x + ((at - from) / (to - from)) * area.width;
  const stretches = busyAtOnce(device, from, to);
  paintRows(context, rows, area);
  paintTicks(context, ticksOf(from, to, area.width), place, area);
  clipped(context, area, height, () => {
    paintGaps(context, device, place, area, from, to);
    paintBusy(context, stretches, rows, place);
    for (const b of bars) paintBar(context, b);
    paintChoice(context, bars);
  });
  return bars;
}

// prepare sizes the canvas in device pixels.
function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + "px";
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  return context;
}

function clipped(context, area, height, paintInside) {
  context.save();
  context.beginPath();
  context.rect(area.x, 0, area.width, height);
  context.clip();
  paintInside();
  context.restore();
}

function paintRows(context, rows, area) {
  context.font = "12px " + theme.font;
  for (const r of rows) {
    context.fillStyle = theme.colours.sunk;
    context.fillRect(area.x, r.y - 1, area.width, r.height + 1);
    context.fillStyle = theme.colours.soft;
    context.textAlign = "right";
    if (r.kind === "strip") paintLevels(context, r, area);
    else context.fillText(r.label, area.x - 8, r.y + r.height / 2);
  }
}

// paintLevels labels the levels of the strip, one for each number of busy engines.
function paintLevels(context, row, area) {
  for (let engines = 1; engines <= ENGINES.length; engines++) {
    const y = row.y + row.height - engines * LEVEL_HEIGHT;
    context.fillText(engines === 1 ? "1 engine" : engines + " at once", area.x - 8, y + LEVEL_HEIGHT / 2 + 1);
    context.fillStyle = theme.colours.grid;
    context.fillRect(area.x, y - 1, area.width, 1);
    context.fillStyle = theme.colours.soft;
  }
}

function paintTicks(context, ticks, place, area) {
  context.font = "11px " + theme.font;
  context.textAlign = "left";
  for (const tick of ticks) {
    const x = Math.round(place(tick.at)) + 0.5;
    context.strokeStyle = theme.colours.line;
    context.beginPath();
    context.moveTo(x, 4);
    context.lineTo(x, area.bottom);
    context.stroke();
    context.fillStyle = theme.colours.soft;
    const room = area.x + area.width - x - 4;
    if (context.measureText(tick.label).width < room) context.fillText(tick.label, x + 4, 10);
  }
}

// paintGaps hatches the intervals for which the page lacks batches.
function paintGaps(context, device, place, area, from, to) {
  const gaps = [...model.gaps, model.hole].filter((g) => g && g.end > from && g.start < to);
  const oldest = model.batches[0];
  if (oldest && oldest.seq > 1 && oldest.start > from) gaps.push({ start: from, end: oldest.start, batches: 0 });
  for (const g of gaps) {
    const x = Math.max(place(g.start), area.x), end = Math.min(place(g.end), area.x + area.width);
    context.save();
    context.beginPath();
    context.rect(x, AXIS_HEIGHT, end - x, area.bottom - AXIS_HEIGHT);
    context.clip();
    context.strokeStyle = theme.colours.gap;
    context.globalAlpha = 0.6;
    for (let at = x - area.bottom; at < end; at += 8) {
      context.beginPath();
      context.moveTo(at, area.bottom);
      context.lineTo(at + area.bottom, 0);
      context.stroke();
    }
    context.restore();
  }
}

// paintBusy draws the number of busy engines: the more engines, the taller and stronger. Where engines overlap, a band
// goes on through the rows of the engines.
function paintBusy(context, stretches, rows, place) {
  const colours = [null, theme.colours.one, theme.colours.two, theme.colours.three];
  const strip = rows.find((r) => r.kind === "strip"), lowest = rows.filter((r) => r.kind === "engine").at(-1);
  for (const s of stretches) {
    const height = s.engines * LEVEL_HEIGHT, width = Math.max(place(s.end) - place(s.start), 0.5);
    context.fillStyle = colours[s.engines];
    context.fillRect(place(s.start), strip.y + strip.height - height, width, height);
    if (s.engines < 2) continue;
    context.fillStyle = theme.colours.band;
    context.fillRect(place(s.start), strip.y + strip.height, width, lowest.y + lowest.height - strip.y - strip.height);
  }
}

function paintBar(context, b) {
  if (b.more) return paintMore(context, b);
  const stage = STAGES[b.stage];
  const others = choice.batch && choice.batch !== b.batch;
  context.globalAlpha = others ? 0.35 : 1;
  context.fillStyle = theme.colours[stage];
  const width = Math.max(b.width - (b.width > 4 ? 1 : 0), LEAST_SEEN);
  if (width > 5) {
    context.beginPath();
    context.roundRect(b.x, b.y, width, b.height, 2.5);
    context.fill();
  } else {
    context.fillRect(b.x, b.y, width, b.height);
  }
  if (b.batch.error) paintFailure(context, b, width);
  paintNumber(context, b, width, stage);
  context.globalAlpha = 1;
}

// paintMore draws a bar that stands for several batches, with their number.
function paintMore(context, b) {
  const width = Math.max(b.width - 1, LEAST_SEEN), text = "+" + count(b.more.length);
  context.fillStyle = theme.colours.more;
  context.fillRect(b.x, b.y, width, b.height);
  context.font = "600 10px " + theme.font;
  context.fillStyle = theme.colours["on-more"];
  context.textAlign = "center";
  if (context.measureText(text).width < width - 2) context.fillText(text, b.x + width / 2, b.y + b.height / 2 + 0.5);
}

// paintFailure crosses out the bars of a failed batch.
function paintFailure(context, b, width) {
  context.fillStyle = theme.colours.bad;
  context.fillRect(b.x, b.y + b.height / 2 - 1.5, width, 3);
}

// paintNumber writes the batch's number if there is enough space.
function paintNumber(context, b, width, stage) {
  const size = Math.min(12, b.height - 1);
  if (width < 22 || size < 9.5 || b.batch.error || (b.row.kind === "lane" && stage === "fill" && width < 60)) return;
  context.font = "600 " + Math.min(size, 11.5) + "px " + theme.font;
  const text = String(b.batch.number);
  if (context.measureText(text).width > width - 8) return;
  context.fillStyle = theme.colours["on-" + stage];
  context.textAlign = "left";
  context.fillText(text, b.x + 5, b.y + b.height / 2 + 0.5);
}

// paintChoice outlines the chosen batch and the one under the pointer. It connects the stages of the chosen batch
// across the rows, like the arrows of the trace.
function paintChoice(context, bars) {
  for (const batch of new Set([choice.hover, choice.batch])) {
    if (!batch) continue;
    const own = bars.filter((b) => b.batch === batch);
    context.strokeStyle = theme.colours.ink;
    context.lineWidth = 1.5;
    if (batch === choice.batch) joinBars(context, own);
    for (const b of own) context.strokeRect(b.x, b.y, b.width, b.height);
    context.lineWidth = 1;
  }
}

function joinBars(context, own) {
  const onWay = STAGES.map((_, stage) => own.find((b) => b.stage === stage && (b.row.kind === "engine") === ENGINE_STAGE.includes(stage))).filter((b) => b);
  context.beginPath();
  onWay.forEach((b, i) => {
    if (i > 0) context.lineTo(b.x, b.y + b.height / 2);
    context.moveTo(b.x + b.width, b.y + b.height / 2);
  });
  context.globalAlpha = 0.7;
  context.stroke();
  context.globalAlpha = 1;
}
