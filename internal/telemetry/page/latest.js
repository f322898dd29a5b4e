// The table of the latest batches.

const LATEST = 8; // number of rows in the table

// showLatest updates the table. It keeps the rows that stay, because a row that is replaced loses the focus, and it keeps
// the row that has the focus even when its batch is no longer among the latest.
function showLatest() {
  const body = element("latest-rows");
  const latest = model.batches.slice(-LATEST), oldest = latest[0]?.seq ?? 0;
  for (const row of [...body.children]) {
    if (Number(row.dataset.seq) < oldest && !row.contains(document.activeElement)) row.remove();
  }
  const newest = Number(body.firstElementChild?.dataset.seq ?? 0);
  for (const b of latest) {
    if (b.seq > newest) body.prepend(latestRow(b));
  }
}

function latestRow(b) {
  const row = document.createElement("tr"), open = document.createElement("button");
  open.type = "button";
  open.textContent = count(b.number);
  open.setAttribute("aria-label", "Batch " + b.number + ", show its stages");
  const on = deviceSpan(b);
  const cells = [
    [open], [titleOf(model.devices[b.device]), "many"], [b.lane], [count(b.payloads)], [bytes(b.bytes)],
    [b.error ? "failed" : b.closed, b.error ? "wide bad" : "wide"], [on === b ? "–" : duration(on.end - on.start), "wide"], [duration(b.end - b.start)],
  ];
  for (const [content, kind] of cells) {
    const cell = document.createElement("td");
    cell.append(content);
    if (kind) cell.className = kind;
    row.append(cell);
  }
  row.dataset.seq = b.seq;
  return row;
}

// clearLatest empties the table, because its batches are of another worker.
function clearLatest() {
  element("latest-rows").replaceChildren();
}
