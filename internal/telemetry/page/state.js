// The state of the whole worker in the page's header, and the banners.

const NOTICED = 2 * SECOND, NOTABLE = 30 * SECOND; // how far the timeline is behind the worker, until the header shows it and calls it late
const TROUBLE = {
  disconnected: {
    title: "Not connected to NATS",
    advice: () => "The worker takes no payloads. They wait in the stream, and the worker reconnects by itself as soon as " + (model.feed.server || "the server")
      + " answers. If the server runs, run worker check on the worker's machine to find the cause.",
  },
  waiting: {
    title: "The worker cannot start",
    advice: () => model.condition.why + ". It tries again by itself.",
  },
  failing: {
    title: "The worker is not ready",
    advice: () => model.condition.why + ". /readyz reports the same. docs/troubleshooting.md says what to do.",
  },
  lost: {
    title: "No connection to the worker",
    advice: () => "This page no longer gets answers (" + link.why + "), so everything below is old. Either the worker has ended, or the way to it is closed, such as a kubectl port-forward.",
  },
};

// stateNow returns what the header shows. The most serious finding comes first. aside changes all the time, so screen
// readers don't announce it.
function stateNow() {
  const condition = model.condition, since = idleSince(), waiting = waitingSince(), late = workerNow() - view.end;
  const show = (state, text, aside = "") => ({ state, text, aside });
  if (link.failures > 0) return show("lost", "Connection to the worker lost; trying again", retryText());
  if (model.cursor < 0) return show("starting", "Connecting");
  if (TROUBLE[condition.state]) return show("bad", TROUBLE[condition.state].title + " since " + wallClock(condition.since), ago(Date.now() - condition.since));
  if (condition.state === "starting") return show("starting", "The worker is starting");
  if (condition.state === "stopping") return show("stopping", "The worker is stopping");
  if (view.paused) return show("paused", "Paused", Number.isFinite(view.end) ? behind(late) : "");
  if (model.batches.length === 0) return show("idle", "Waiting for the first batch");
  if (Number.isFinite(since)) return show("idle", "Idle since " + clockTime(since).slice(0, 8));
  if (Number.isFinite(waiting)) return show("waiting", "No batch has finished since " + clockTime(waiting).slice(0, 8), inFlightText());
  if (late > NOTABLE) return show("late", "Timeline is late", behind(late));
  if (view.window < REAL_TIME) return show("live", "Live, in slow motion", late >= SECOND ? behind(late) : "");
  return show("live", "Live", late > NOTICED ? behind(late) : "");
}

function retryText() {
  const seconds = Math.max(0, Math.ceil((link.retryAt - performance.now()) / 1000));
  return seconds > 0 ? "in " + seconds + " s" : "";
}

// behind formats the age of the timeline in steps that are easy to read.
function behind(ns) {
  return ago(ns / 1e6) + " behind";
}

function inFlightText() {
  return count(model.devices.reduce((sum, d) => sum + (d.stats?.Lanes.InFlight ?? 0), 0)) + " in flight";
}

// troubleNow returns the key of the trouble that the red banner explains, or undefined.
function troubleNow() {
  if (link.failures > 1) return "lost";
  return TROUBLE[model.condition.state] && model.condition.state;
}

function showState() {
  const { state, text, aside } = stateNow();
  element("state").dataset.state = state;
  setText("state-text", text); // setText leaves equal text alone, otherwise screen readers would announce it every time
  setText("state-aside", aside);
  element("state").title = state === "lost" ? link.why : model.condition.why;
  document.title = (state === "bad" || state === "lost" ? "✕ " + text + " – " : "") + "Millrace timeline";
  showTrouble(troubleNow());
  element("on-cpu").hidden = model.cpu === "";
  element("on-cpu").dataset.cpu = model.cpu;
  showFeed();
}

function showTrouble(key) {
  element("trouble").hidden = !key;
  element("empty-text").hidden = !!key; // the text reports that the worker runs
  if (!key) return;
  const since = key === "lost" ? link.since : model.condition.since;
  setText("trouble-title", TROUBLE[key].title + " since " + wallClock(since));
  setText("trouble-for", "for " + ago(Date.now() - since));
  setText("trouble-advice", TROUBLE[key].advice());
}

// showFeed shows where payloads come from and how to send one: prominently before the first batch, then at the end of the page.
function showFeed() {
  const feed = model.feed, home = element(model.batches.length === 0 ? "empty" : "after");
  element("feed").hidden = !feed.server;
  if (element("feed").parentElement !== home) home.append(element("feed"));
  if (!feed.server) return;
  setText("feed-server", feed.server);
  setText("feed-stream", feed.stream);
  setText("feed-subjects", feed.subjects.join(", "));
  setText("feed-results", feed.results);
  const kept = keptText();
  element("feed-kept-name").hidden = element("feed-kept").hidden = kept === "";
  setText("feed-kept", kept);
  const states = statesText();
  element("feed-states-name").hidden = element("feed-states").hidden = states === "";
  setText("feed-states", states);
  setText("feed-send", feed.send);
  setText("feed-follow", feed.follow);
  const login = feed.login ?? [];
  element("feed-login").hidden = login.length === 0;
  setText("feed-login", "Both commands need what the worker logs in with, and this page shows no credentials: set " + login.join(", ") + " as for the worker.");
}

// keptText names the consumer for which the input stream keeps inputs. It is empty if the stream keeps none, or if another worker trims.
function keptText() {
  const { consumer, inputs, why } = model.kept;
  if (why) return "processed inputs stay (" + why + "): run worker check";
  return consumer && "the last " + count(inputs) + ", which consumer " + consumer + " has not acknowledged from the first on";
}

// statesText describes the states of a stateful operator. It is empty without one.
function statesText() {
  const s = model.states;
  if (!s) return "";
  return count(s.duplicate) + " of " + count(s.first + s.duplicate) + " records depend on an earlier one; " + count(s.records) + " records of " +
    count(s.partitions) + (s.partitions === 1 ? " partition" : " partitions") + " in " + bytes(s.bytes) + " of " + bytes(s.limit) + ", load " +
    percent(s.load) + " %, generation " + count(s.generation);
}

// setText changes the text of an element only if it differs.
function setText(id, text) {
  const e = element(id);
  if (e.textContent !== text) e.textContent = text;
}
