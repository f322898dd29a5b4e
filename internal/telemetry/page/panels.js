// The figures around the timelines: a section for each device, and the totals.

const element = (id) => document.getElementById(id);
const USAGE = "Click a batch to see its stages. Drag to pause the timeline and move it.";
const FILL_OF = 50; // number of batches for the batch fill
const sections = []; // by device: {root, canvas, bars, field}

// sectionOf returns a device's section of the page and creates it on the first call.
function sectionOf(device) {
  if (sections[device.index]) return sections[device.index];
  const root = element("device-template").content.firstElementChild.cloneNode(true);
  const section = { root, canvas: root.querySelector("canvas"), bars: [], field: (name) => root.querySelector("[data-" + name + "]") };
  section.field("name").textContent = titleOf(device);
  section.field("id").textContent = device.name.startsWith(device.id) ? "" : device.id;
  if (model.cpu !== "") throughputFirst(root);
  for (const name of ENGINES) section.field("engines").append(...engineRow(name));
  element("devices").append(root);
  sections[device.index] = section;
  listen(section, device.index);
  return section;
}

// throughputFirst changes the figures of a CPU device, which has no engines that could overlap.
function throughputFirst(root) {
  const overlap = root.querySelector("[data-tile=overlap]"), throughput = root.querySelector("[data-tile=throughput]");
  overlap.classList.remove("first");
  throughput.classList.add("first");
  overlap.parentElement.append(overlap);
}

// titleOf returns a device's title, numbered if there are several devices with that name.
function titleOf(device) {
  const alike = model.devices.filter((d) => d.name === device.name);
  return device.name + (alike.length > 1 ? ", " + count(device.index + 1) : "");
}

function engineRow(name) {
  const label = document.createElement("span"), meter = document.createElement("div"), value = document.createElement("b");
  label.textContent = stageName(name);
  meter.className = "meter " + name;
  meter.append(document.createElement("i"));
  value.dataset.engine = name;
  return [label, meter, value];
}

function clearSections() {
  for (const s of sections.splice(0)) s.root.remove();
}

// showFigures updates all figures.
function showFigures() {
  const known = model.batches.length > 0;
  element("empty").hidden = known || model.cursor < 0;
  element("latest").hidden = element("tools").hidden = !known;
  document.body.classList.toggle("several", model.devices.length > 1);
  for (const device of model.devices) {
    const section = sectionOf(device), rates = recent(device);
    showThroughput(section, device, rates);
    showShares(section, device, rates);
    showFill(section, device);
    if (device.stats) showScratch(section, device);
    showLanes(section, device);
  }
  showJob();
  showEverything();
  showNote();
}

function showThroughput(section, device, rates) {
  section.field("payload-rate").textContent = short(rates.payloads);
  section.field("byte-rate").textContent = bytes(rates.bytes) + "/s";
  showSpark(section.field("spark"), device.spark.slice(1).map((p) => p.rate));
}

// showSpark draws the last rates, at most SPARK_POINTS.
function showSpark(svg, rates) {
  const most = Math.max(...rates, 1e-9);
  const x = (i) => 60 - (rates.length - 1 - i) * (60 / (SPARK_POINTS - 1));
  const points = rates.map((rate, i) => x(i).toFixed(1) + "," + (19 - (18 * rate) / most).toFixed(1));
  svg.firstElementChild.setAttribute("points", points.length > 1 ? points.join(" ") : "");
}

function showShares(section, device, rates) {
  section.field("busy").textContent = percent(rates.busy);
  ENGINES.forEach((name, e) => {
    section.root.querySelector("[data-engine=" + name + "]").textContent = percent(rates.engines[e]) + (Number.isFinite(rates.engines[e]) ? "%" : "");
    setWidth(section.root.querySelector(".engines ." + name + " i"), rates.engines[e]);
  });
  section.field("overlap").textContent = percent(rates.overlap);
  section.field("overlap").classList.toggle("unknown", !Number.isFinite(rates.overlap));
  setWidth(section.field("overlap-several"), rates.several);
  setWidth(section.field("overlap-any"), rates.busy);
  section.field("overlap-sub").textContent = rates.few && device.batches.length > 0 ? "too few batches to tell" : overlapNote(device);
  const single = model.cpu !== "" && !copies(device);
  section.root.querySelector("[data-tile=overlap]").hidden = section.root.querySelector(".shares .several").hidden = single;
  section.root.querySelector(".tiles").classList.toggle("five", single);
  showShareLegend(section, rates);
}

// copies reports whether the device's batches are copied to it and back.
function copies(device) {
  return device.batches.slice(-FILL_OF).some((b) => b.stages[COPY_IN] || b.stages[COPY_OUT]);
}

function overlapNote(device) {
  const stats = device.stats;
  if (!stats || device.batches.length === 0) return "no batch yet";
  if (!copies(device)) return "nothing is copied here, so there is nothing to overlap";
  return percent(stats.Overlap / stats.Busy) + " % since the start";
}

function showFill(section, device) {
  const some = device.batches.slice(-FILL_OF);
  const mean = (name) => (some.length ? some.reduce((sum, b) => sum + b[name], 0) / some.length : 0);
  const share = device.bounds.bytes > 0 ? mean("bytes") / device.bounds.bytes : NaN;
  section.field("fill").textContent = percent(share);
  setWidth(section.field("fill-bytes"), share);
  section.field("fill-sub").textContent = some.length === 0 ? "no batch yet"
    : bytes(mean("bytes")) + " of " + bytes(device.bounds.bytes) + ", " + count(mean("payloads")) + " of " + count(device.bounds.payloads) + " payloads";
}

// showScratch shows the scratch that the batches used, one by one and together, and what the pool holds. It doesn't show
// how much the pool has handed out, because a pool counts memory as free again as soon as its release is enqueued, long
// before the batch has used it.
function showScratch(section, device) {
  const pool = device.stats.Scratch, some = device.batches.slice(-FILL_OF);
  const mean = some.length ? some.reduce((sum, b) => sum + b.scratch, 0) / some.length : 0;
  const most = some.reduce((most, b) => Math.max(most, b.scratch), 0), together = scratchAtOnce(some);
  const [value, unit] = bytes(Math.round(mean)).split(" ");
  section.field("scratch").textContent = value;
  section.field("scratch-unit").textContent = unit + "/batch";
  setWidth(section.field("used"), together / pool.limit);
  setWidth(section.field("reserved"), pool.reserved / pool.limit);
  section.field("scratch-sub").textContent = "at most " + bytes(most) + ", together " + bytes(together) + "; pool " + bytes(pool.Reserved) + " of " + bytes(pool.Limit);
}

// scratchAtOnce returns the most scratch that batches used at the same time. A batch uses its scratch while it computes.
function scratchAtOnce(batches) {
  const edges = batches.filter((b) => b.stages[COMPUTE]).flatMap((b) => [{ at: b.stages[COMPUTE].start, bytes: b.scratch }, { at: b.stages[COMPUTE].end, bytes: -b.scratch }]);
  edges.sort((a, b) => a.at - b.at || a.bytes - b.bytes);
  let now = 0, most = 0;
  for (const edge of edges) {
    now += edge.bytes;
    most = Math.max(most, now);
  }
  return most;
}

function showLanes(section, device) {
  if (!device.stats) return;
  const lanes = device.stats.Lanes;
  section.field("lanes").textContent = lanes.InFlight;
  section.field("lanes-unit").textContent = "of " + (lanes.InFlight + lanes.Filling + lanes.Free) + " in flight";
  section.field("lanes-sub").textContent = lanes.Filling + " filling, " + lanes.Free + " free";
  const dots = section.field("lane-dots");
  dots.replaceChildren(...["in_flight", "filling", "free"].flatMap((state) => Array.from({ length: lanes[state] }, () => {
    const dot = document.createElement("span");
    dot.className = state;
    return dot;
  })));
}

function setWidth(bar, share) {
  bar.style.width = (Number.isFinite(share) ? Math.min(Math.max(share, 0), 1) * 100 : 0) + "%";
}

// showEverything shows the totals over all devices, if there are several.
function showEverything() {
  element("everything").hidden = model.devices.length < 2;
  const all = model.devices.map(recent);
  const sum = (name) => all.reduce((total, rates) => total + rates[name], 0);
  element("everything").textContent = plural(model.devices.length, "device", "devices") + " together: " + short(sum("payloads")) + " payloads/s, " + bytes(sum("bytes")) + "/s";
}

function showNote() {
  const sums = (name) => model.devices.reduce((total, d) => total + d.sums[name], 0);
  let text = plural(sums("batches"), "batch", "batches") + " with " + plural(sums("payloads"), "payload", "payloads") + " since the start";
  if (sums("failed") > 0) text += ", " + count(sums("failed")) + " failed";
  const missing = model.gaps.reduce((total, g) => total + g.batches, 0);
  text += ". Figures of a device cover the time that is named above its timeline; batch fill covers the last " + FILL_OF + " batches.";
  if (missing > 0) text += " " + plural(missing, "batch", "batches") + " arrived faster than this page polls, or while it did not poll. The figures count them; the timelines show hatching instead.";
  element("note").textContent = text;
}

// showChartHeads shows which interval each timeline covers and how it moves.
function showChartHeads() {
  for (const device of model.devices) {
    const section = sectionOf(device);
    section.root.querySelector(".chart").hidden = !Number.isFinite(view.end) || device.batches.length === 0;
    section.field("when").textContent = roundDuration(view.window) + " from " + clockTime(view.end - view.window);
    section.field("pace").textContent = pace();
    if (section.field("hint").textContent === "") section.field("hint").textContent = USAGE;
    const shown = new Set(section.bars.map((b) => b.batch)).size;
    section.canvas.setAttribute("aria-label", "Timeline of " + device.name + ": " + plural(shown, "batch", "batches") + " on three engines and " + plural(laneCount(device), "lane", "lanes")
      + " within " + roundDuration(view.window) + ". Choose a batch with the arrow keys, Enter shows its stages.");
  }
}

// showShareLegend shows how much of the time how many engines were busy: the legend of the strip. It covers the same time as the figures.
function showShareLegend(section, rates) {
  const shares = { several: rates.several, one: rates.busy - rates.several, none: 1 - rates.busy };
  section.field("span").textContent = rates.few ? "Too few batches to tell" : "Over the last " + Math.max(1, Math.round(rates.seconds)) + " s:";
  for (const [name, share] of Object.entries(shares)) section.root.querySelector("[data-share=" + name + "] b").textContent = percent(share) + " %";
}
