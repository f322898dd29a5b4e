// Asking the worker. One request is under way at a time; none while the page is hidden or held.

const POLL_EVERY = 200; // ms
const ASK_FOR = 1000; // batches at most, the most that the worker gives
const PATIENCE = 5000; // ms until an answer counts as lost
const FIRST_RETRY = 500, LAST_RETRY = 8000; // ms

const link = { timer: 0, busy: false, failures: 0, retryAt: 0, why: "" };

async function poll() {
  clearTimeout(link.timer);
  if (link.busy || document.hidden || view.paused) return;
  link.busy = true;
  let wait = POLL_EVERY;
  try {
    const answer = await ask();
    // What comes once the timeline is held is dropped, and asked for again from there: nothing may move under the pointer.
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
