// User input, and the loop that updates the page.

const FRAME = 1000 / 30, FIGURES = 250, TABLE = 1000; // intervals in ms: drawing, figures, table
const REACH = 9; // CSS pixels

// hold pauses the timeline; why is "button" or "choice".
function hold(why) {
  if (view.paused) return;
  Object.assign(view, { paused: true, heldBy: why });
  showPause();
}

// release resumes the timeline, if it was paused for that reason.
function release(why) {
  if (!view.paused || view.heldBy !== why) return;
  view.paused = false;
  view.shot.to = NaN;
  showPause();
  poll();
}

function showPause() {
  element("pause").textContent = view.paused ? "Resume" : "Pause";
  element("pause").setAttribute("aria-pressed", view.paused);
  redraw();
}

function togglePause() {
  if (view.paused) {
    choice.batch = null;
    showDetail(false);
    view.heldBy = "button";
    release("button");
  } else {
    hold("button");
  }
}

function zoomTo(index) {
  view.auto = false;
  setWindow(WINDOWS[Math.min(Math.max(index, 0), WINDOWS.length - 1)]);
  redraw();
}

function zoomBy(step) {
  zoomTo(WINDOWS.indexOf(view.window) + step);
}

function showZoom() {
  const text = roundDuration(view.window);
  element("zoom").value = WINDOWS.length - 1 - WINDOWS.indexOf(view.window); // right is a shorter window
  element("zoom").setAttribute("aria-valuetext", text);
  element("zoom-text").textContent = text;
  element("zoom-auto").setAttribute("aria-pressed", view.auto);
}

// listen adds the handlers for the pointer and the keys to a timeline.
function listen(section, index) {
  const canvas = section.canvas;
  let drag = null;
  const under = (event) => barAt(section.bars, event.offsetX, event.offsetY, event.pointerType === "touch" ? 2 * REACH : REACH / 2);
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, end: view.end, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag && event.buttons && Math.abs(event.offsetX - drag.x) > 4) {
      hold("button");
      drag.moved = true;
      view.end = drag.end - ((event.offsetX - drag.x) / canvas.clientWidth) * view.window;
    }
    hover(section, under(event));
  });
  canvas.addEventListener("pointerleave", () => hover(section, null));
  canvas.addEventListener("click", (event) => {
    const bar = drag?.moved ? null : under(event);
    drag = null;
    if (bar) openDetail(bar.batch, canvas, bar.more);
  });
  canvas.addEventListener("keydown", (event) => pressed(event, section, model.devices[index]));
}

function hover(section, bar) {
  choice.hover = bar?.batch ?? null;
  hint(section, bar ? hintOf(bar) : USAGE);
  redraw();
}

function hintOf(bar) {
  if (bar.more) return "no space for " + plural(bar.more.length, "batch", "batches") + ": " + bar.more.map((b) => count(b.number)).join(", ") + ". Click to see the first, and go on from there.";
  return "batch " + count(bar.batch.number) + ", " + stageName(STAGES[bar.stage]) + " " + duration(bar.end - bar.start);
}

function hint(section, text) {
  if (section.field("hint").textContent !== text) section.field("hint").textContent = text;
}

// pressed handles the keys of a timeline: the arrow keys choose a batch, Enter opens it, + and - zoom, and space
// pauses.
function pressed(event, section, device) {
  const actions = {
    ArrowLeft: () => walk(section, device, -1), ArrowRight: () => walk(section, device, 1),
    Enter: () => choice.batch && openDetail(choice.batch, section.canvas),
    "+": () => zoomBy(-1), "-": () => zoomBy(1), " ": togglePause,
  };
  const act = actions[event.key];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
}

// walk chooses the batch before or after the chosen one. If none is chosen, it chooses the one in the middle.
function walk(section, device, by) {
  const shown = [...new Set(section.bars.flatMap((b) => b.more ?? b.batch))].sort((a, b) => a.start - b.start);
  const current = choice.batch?.device === device.index ? choice.batch : null;
  const next = current ? neighbour(current, by) : shown[Math.floor(shown.length / 2)];
  if (!next) return;
  choose(next);
  hint(section, "batch " + count(next.number) + ", lane " + next.lane + ", " + plural(next.payloads, "payload", "payloads") + ", " + duration(next.end - next.start) + ". Enter shows its stages.");
  redraw();
}

// onAnswer runs after each response of the worker.
function onAnswer() {
  if (model.cursor < 0) {
    clearSections(); // another worker with other devices
    clearLatest();
    view.end = NaN;
    choice.batch = choice.hover = null;
    showDetail(false);
  }
}

const due = { frame: 0, figures: 0, table: 0, redraw: false };

function redraw() {
  due.redraw = true;
}

// tick runs for every animation frame and makes the updates that are due.
function tick(now) {
  requestAnimationFrame(tick);
  if (now - due.frame < FRAME && !due.redraw) return;
  Object.assign(due, { frame: now, redraw: false });
  advance();
  for (const device of model.devices) {
    const section = sectionOf(device);
    if (Number.isFinite(view.end) && device.batches.length > 0) section.bars = paint(section.canvas, device);
  }
  if (now - due.figures >= FIGURES) {
    due.figures = now;
    showState();
    showFigures();
    showChartHeads();
    showZoom();
  }
  if (now - due.table >= TABLE && !view.paused) {
    due.table = now;
    showLatest();
  }
}

function begin() {
  readTheme();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", readTheme);
  element("pause").addEventListener("click", togglePause);
  element("zoom").addEventListener("input", (event) => zoomTo(WINDOWS.length - 1 - event.target.value));
  element("zoom-in").addEventListener("click", () => zoomBy(-1));
  element("zoom-out").addEventListener("click", () => zoomBy(1));
  element("zoom-auto").addEventListener("click", () => {
    view.auto = true;
    setWindow(autoWindow());
  });
  element("detail-close").addEventListener("click", closeDetail);
  element("detail-before").addEventListener("click", () => step(-1));
  element("detail-after").addEventListener("click", () => step(1));
  element("latest-rows").addEventListener("click", (event) => {
    const seq = Number(event.target.closest("tr")?.dataset.seq);
    const batch = model.batches.find((b) => b.seq === seq);
    if (batch) openDetail(batch, event.target.closest("tr").querySelector("button"));
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && closeDetail());
  // Exposes the drawn elements for tests. The positions of bars are CSS pixels within their canvas.
  window.millraceTimeline = { model, view, drawn: () => sections.flatMap((s, device) => s.bars.map((b) => ({ device, batch: b.batch.number, stage: STAGES[b.stage], row: b.row.name, start: b.start, end: b.end, x: b.x, y: b.y, width: b.width, height: b.height, more: b.more?.map((m) => m.number) }))) };
  poll();
  requestAnimationFrame(tick);
}

begin();
