// The selection of a batch, and the panel that shows its stages.

const choice = { batch: null, hover: null, opener: null, others: [] };

const CLOSED_BY = {
  bytes: "bytes: the next payload would not fit",
  count: "count: it had the maximum number of payloads",
  linger: "linger: its oldest payload had waited long enough",
  drain: "drain: the worker is stopping",
};

// openDetail shows a batch. opener gets the focus back; others are the batches that share a bar with it.
function openDetail(batch, opener, others) {
  choice.opener = opener ?? choice.opener;
  choice.others = others ?? (choice.others.includes(batch) ? choice.others : []);
  choose(batch);
  fillDetail(batch);
  fillOthers(batch);
  showDetail(true);
  element("detail-title").focus({ preventScroll: true });
}

function showDetail(shown) {
  element("detail").hidden = !shown;
  document.body.classList.toggle("detailed", shown);
}

// choose selects a batch and pauses the timeline, so that the batch stays visible.
function choose(batch) {
  hold("choice");
  choice.batch = batch;
  const on = deviceSpan(batch);
  if (on.end < view.end - view.window || on.start > view.end) view.end = on.end + view.window / 4;
}

function closeDetail() {
  if (!choice.batch) return;
  showDetail(false);
  choice.batch = null;
  focusOpener();
  choice.opener = null;
  choice.others = [];
  release("choice");
}

// focusOpener returns the focus to the row or the timeline that opened the panel, or to the first timeline if that is
// gone.
function focusOpener() {
  const opener = choice.opener?.isConnected ? choice.opener : sections[0]?.canvas;
  opener?.focus({ preventScroll: true });
}

// fillOthers offers the other batches of a bar that stands for several.
function fillOthers(batch) {
  const others = choice.others.filter((b) => b !== batch);
  element("detail-others").hidden = others.length === 0;
  element("detail-others").replaceChildren("At the same place: ", ...others.map((b) => {
    const open = document.createElement("button");
    open.type = "button";
    open.textContent = count(b.number);
    open.addEventListener("click", () => openDetail(b));
    return open;
  }));
}

function fillDetail(b) {
  const device = model.devices[b.device];
  element("detail-title").textContent = "Batch " + count(b.number);
  element("detail-where").textContent = "lane " + b.lane + " of " + titleOf(device);
  element("detail-error").hidden = !b.error;
  element("detail-error").textContent = b.error;
  element("detail-stages").replaceChildren(...STAGES.map((name, i) => stageLine(b, name, i)));
  const facts = [
    ["began", clockTime(b.start)], ["whole way", duration(b.end - b.start)],
    ["payloads", count(b.payloads) + " of " + count(device.bounds.payloads)], ["bytes", bytes(b.bytes) + " of " + bytes(device.bounds.bytes)],
    ["results", bytes(b.results)], ["scratch", bytes(b.scratch)], ["closed by", CLOSED_BY[b.closed] ?? b.closed],
  ];
  if (b.messages > 0 && b.messages !== b.payloads) facts.splice(2, 1, ["records", count(b.payloads) + " of " + count(device.bounds.payloads)], ["messages", count(b.messages)]);
  element("detail-facts").replaceChildren(...facts.flatMap(([name, value]) => {
    const term = document.createElement("dt"), fact = document.createElement("dd");
    term.textContent = name;
    fact.textContent = value;
    return [term, fact];
  }));
  element("detail-before").disabled = !neighbour(b, -1);
  element("detail-after").disabled = !neighbour(b, 1);
}

// stageLine shows a stage with its position in the batch's time, its duration, and how long the batch waited for the
// stage.
function stageLine(b, name, i) {
  const line = document.createElement("li"), label = document.createElement("span"), track = document.createElement("div");
  const length = document.createElement("b"), waited = document.createElement("small");
  const span = b.stages[i], bar = document.createElement("span");
  line.dataset.stage = name;
  label.textContent = stageName(name);
  track.className = "track";
  line.append(label, track, length);
  if (!span) {
    line.className = "never";
    length.textContent = "did not run";
    return line;
  }
  const whole = Math.max(b.end - b.start, 1);
  bar.style.background = theme.colours[name];
  bar.style.left = (100 * (span.start - b.start)) / whole + "%";
  bar.style.width = (100 * (span.end - span.start)) / whole + "%";
  track.append(bar);
  length.textContent = duration(span.end - span.start);
  waited.textContent = stageWhen(b, span, i);
  line.append(waited);
  return line;
}

function stageWhen(b, span, i) {
  const earlier = b.stages.slice(0, i).filter((s) => s).at(-1);
  const wait = earlier ? span.start - earlier.end : 0;
  const at = span.start > b.start ? "at " + duration(span.start - b.start) : "at the start";
  return at + (wait > 0 ? ", after waiting " + duration(wait) : "");
}

// neighbour returns the batch that started before or after this one on its device, or undefined at either end of the
// known batches.
function neighbour(b, step) {
  const order = [...model.devices[b.device].batches].sort((x, y) => x.start - y.start || x.seq - y.seq);
  return order[order.indexOf(b) + step];
}

// step shows the previous or next batch in the panel.
function step(by) {
  const next = choice.batch && neighbour(choice.batch, by);
  if (next) openDetail(next);
}
