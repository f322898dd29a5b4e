// Polls the worker. At most one request runs at a time, and none while the page is hidden or paused.

const POLL_EVERY = 200; // ms
const ASK_FOR = 1000; // maximum number of batches per request, which is the worker's limit
const PATIENCE = 5000; // ms until a request times out
const FIRST_RETRY = 500, LAST_RETRY = 8000; // ms

const link = { timer: 0, busy: false, failures: 0, retryAt: 0, why: "" };

async function poll() {
  clearTimeout(link.timer);
  if (link.busy || document.hidden || view.paused) return;
  link.busy = true;
  let wait = POLL_EVERY;
  try {
    const answer = await ask();
    // Drop a response that arrives while the timeline is paused, and request it again later: nothing may move under the
    // pointer.
    if (!view.paused && !take(answer)) wait = 0;
    link.failures = 0;
    onAnswer();
  } catch (error) {
    wait = Math.min(FIRST_RETRY * 2 ** link.failures, LAST_RETRY);
    link.failures++;
    link.why = error.name === "TimeoutError" ? "no answer within " + PATIENCE / 1000 + " s" : error.message;
    link.retryAt = performance.now() + wait;
  }
  link.busy = false;
  link.timer = setTimeout(poll, wait);
}

async function ask() {
  const after = model.cursor < 0 ? "" : "&after=" + model.cursor;
  const response = await fetch("/timeline?limit=" + ASK_FOR + after, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (!response.ok) throw new Error("it answered with status " + response.status);
  return response.json();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) poll();
});
