// The job: what waits and until when, how fast it goes, what failed, and which worker this is.

const IN_HAND = 5; // seconds of work that wait while a worker keeps up
const POINT_EVERY = 5; // seconds, as jobEvery in job.go
const shownRows = new Map(); // by list: the texts of its rows

// untilDone returns the first figure of the page, a sentence that explains it, and whether the job goes well, slowly or badly.
function untilDone(job) {
  const waiting = job.waiting ?? 0, wait = plural(waiting, "message waits", "messages wait"), over = " over the last " + Math.round(job.span / 1000) + " s";
  if (TROUBLE[model.condition.state]) return ["Unknown", job.waiting === null ? "The worker has not learned what waits." : wait + ", as of the server's last answer.", "bad"];
  if (job.waiting === null) return ["–", "The server has not said yet what waits.", "well"];
  if (waiting === 0) return ["Nothing waits", job.finished > 0 ? "Every message is finished." : "No message has come yet.", "well"];
  if (job.span === 0) return ["–", wait + ". The rate is known in a few seconds.", "well"];
  if (waiting < job.finished_rate * IN_HAND) return ["Keeps up", wait + ", less than " + IN_HAND + " s of work.", "well"];
  if (job.drain === null) return ["–", wait + ". The rate is known in a few seconds.", "well"];
  if (job.drain > 0) return [ago((waiting / job.drain) * 1000), wait + ", " + short(job.drain) + "/s fewer" + over + ".", "well"];
  if (job.finished_rate === 0) return ["Rate 0", wait + ", and this worker finished none" + over + ".", "bad"];
  return [job.drain < 0 ? "Growing" : "No end", wait + ", " + (job.drain < 0 ? short(-job.drain) + "/s more" : "and no fewer") + over + ", although this worker finishes " + short(job.finished_rate) + "/s.", "slow"];
}

function showJob() {
  const job = model.job;
  element("job").hidden = !job;
  if (!job) return;
  const [until, waiting, going] = untilDone(job);
  setText("job-until", until);
  setText("job-waiting", waiting);
  element("job-end").dataset.going = going;
  const { host, process, connection } = job.worker;
  setText("job-who", [host, process && "process " + process, connection && "connection name " + connection].filter((part) => part).join(" · "));
  showJobRates(job);
  const letters = Object.entries(job.letters ?? {}).sort((a, b) => b[1] - a[1]), dead = letters.reduce((sum, [, n]) => sum + n, 0);
  setText("job-letters", count(dead));
  element("job-letters").classList.toggle("bad", dead > 0);
  setText("job-letters-sub", letters.map(([reason, n]) => reason + " " + count(n)).join(", ") || "none");
  setText("job-redelivered", large(job.redelivered));
  setText("job-finished", large(job.finished));
  setText("job-finished-sub", "in " + ago(Date.now() - job.started) + ", since " + wallClock(job.started) + (job.filtered > 0 ? "; filtered records: " + large(job.filtered) : ""));
  if (!view.paused) showJobRows(job); // rows move what is below them
}

function showJobRates(job) {
  const points = job.points ?? [], known = job.span > 0;
  const [value, unit] = bytes(job.byte_rate).split(" ");
  setText("job-records", known ? short(job.record_rate) : "–");
  setText("job-bytes", known ? value : "–");
  setText("job-bytes-unit", (known ? unit : "B") + "/s");
  showSpark(element("job-records-spark"), points.map((p) => p.records));
  showSpark(element("job-bytes-spark"), points.map((p) => p.bytes));
  const most = (name) => Math.max(0, ...points.map((p) => p[name]));
  const sub = (highest) => known && points.length > 0 ? "over " + Math.round(job.span / 1000) + " s; at most " + highest + "/s in " + minutes(points) : "no rate yet";
  setText("job-records-sub", sub(short(most("records"))));
  setText("job-bytes-sub", sub(bytes(most("bytes"))));
}

// large formats a whole number exactly if it is short enough.
function large(n) {
  return n < 1e4 ? count(n) : short(n);
}

// minutes formats how long the points of the chart reach back.
function minutes(points) {
  const seconds = points.length * POINT_EVERY;
  return seconds < 60 ? Math.round(seconds) + " s" : Math.round(seconds / 60) + " min";
}

// showJobRows shows the workers that share the partitions, the streams with the most lag, and the last dead letters. Their texts come from others.
function showJobRows(job) {
  const members = job.members ?? [], last = job.last ?? [], owned = members.reduce((sum, m) => sum + m.owns, 0);
  element("job-shares").hidden = members.length === 0;
  setText("job-shares-title", "Partitions: " + count(owned) + " of " + count(job.partitions) + " owned, " + plural(members.length, "worker", "workers")
    + (owned < job.partitions ? ". A worker owns a partition from its first input on." : ""));
  setRows("job-shares-rows", members, (m) => [[m.self ? "this worker" : m.name, "who"], [m.owns === 0 ? "no partition" : plural(m.owns, "partition", "partitions") + (m.partitions ? ": " + m.partitions : ""), ""]]);
  const shards = job.shards ?? [];
  element("job-shards").hidden = shards.length === 0;
  setText("job-shards-title", plural(job.streams, "stream", "streams") + (shards.length < job.streams ? ", the " + shards.length + " with the most waiting messages" : ", by waiting messages"));
  setRows("job-shards-rows", shards, (s) => [[s.stream, "who"], [plural(s.waiting, "message waits", "messages wait") + (s.stalled > 0 ? ", and a consumer delivers none" : ""), ""]]);
  element("job-last").hidden = last.length === 0;
  setRows("job-last-rows", last, (l) => [
    [wallClock(l.at), ""], [l.reason, "reason"], ["sequence " + l.sequence + (l.record < 0 ? "" : ", record " + l.record) + ", " + l.subject, ""], [l.error, ""],
  ]);
}

// setRows replaces the rows of a list if their texts differ.
function setRows(id, items, textsOf) {
  const rows = items.map(textsOf), text = JSON.stringify(rows);
  if (shownRows.get(id) === text) return;
  shownRows.set(id, text);
  element(id).replaceChildren(...rows.map((texts) => {
    const row = document.createElement("li");
    row.append(...texts.map(([text, kind]) => {
      const cell = document.createElement("span");
      cell.textContent = text;
      cell.className = kind;
      return cell;
    }));
    return row;
  }));
}
