// Polls the worker. At most one request runs at a time, and none while the page is hidden. While the timeline is paused, the page requests
// only the state of the worker: nothing may move under the pointer, but trouble must show.

const POLL_EVERY = 200, POLL_PAUSED = 1000; // ms
const ASK_FOR = 1000; // maximum number of batches per request, which is the worker's limit
const PATIENCE = 5000; // ms until a request times out
const FIRST_RETRY = 500, LAST_RETRY = 8000; // ms

const link = { timer: 0, busy: false, failures: 0, retryAt: 0, why: "", since: 0 }; // since: Unix ms of the first failure in a row

async function poll() {
  clearTimeout(link.timer);
  if (link.busy || document.hidden) return;
  link.busy = true;
  let wait = POLL_EVERY;
  try {
    const brief = view.paused;
    const answer = await ask(brief ? 1 : ASK_FOR);
    if (brief || view.paused) {
      takeCondition(answer);
      wait = view.paused ? POLL_PAUSED : 0;
    } else {
      if (!take(answer)) wait = 0;
      onAnswer();
    }
    link.failures = 0;
  } catch (error) {
    wait = Math.min(FIRST_RETRY * 2 ** link.failures, LAST_RETRY);
    link.failures++;
    link.since ||= Date.now();
    link.why = error.name === "TimeoutError" ? "no answer within " + PATIENCE / 1000 + " s" : error.message;
    link.retryAt = performance.now() + wait;
  }
  if (link.failures === 0) link.since = 0;
  link.busy = false;
  link.timer = setTimeout(poll, wait);
}

async function ask(limit) {
  const after = model.cursor < 0 ? "" : "&after=" + model.cursor;
  const response = await fetch("/timeline?limit=" + limit + after, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (!response.ok) throw new Error("it answered with status " + response.status);
  return response.json();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) poll();
});
