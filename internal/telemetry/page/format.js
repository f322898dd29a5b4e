// Formatting of figures. Times are in nanoseconds, memory is in bytes.

const grouped = new Intl.NumberFormat("en");

// count formats a whole number with thousands separators.
function count(n) {
  return grouped.format(Math.round(n));
}

// short formats a number with three digits and a unit prefix, for large figures in little space.
function short(n) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (n >= size) return digits(n / (size === 1e4 ? 1e3 : size)) + " " + letter;
  }
  return n >= 10 || n === 0 ? count(n) : digits(n);
}

// digits formats a number with three digits.
function digits(n) {
  if (n >= 100) return n.toFixed(0);
  if (n >= 10) return n.toFixed(1);
  return n.toFixed(2);
}

function bytes(n) {
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (n >= size) {
      const value = n / size;
      return (Number.isInteger(value) ? count(value) : digits(value)) + " " + unit;
    }
  }
  return count(n) + " B";
}

function duration(ns) {
  for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (ns >= size) return digits(ns / size) + " " + unit;
  }
  return count(ns) + " ns";
}

// ago formats a time in milliseconds as people say it.
function ago(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000)), minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60);
  if (seconds < 60) return seconds + " s";
  if (minutes < 60) return minutes + " min" + (minutes < 10 ? " " + (seconds % 60) + " s" : "");
  return hours < 48 ? hours + " h " + (minutes % 60) + " min" : Math.floor(hours / 24) + " days";
}

// roundDuration formats the length of a window, which is a round number.
function roundDuration(ns) {
  return ns >= 1e9 ? count(ns / 1e9) + " s" : count(ns / 1e6) + " ms";
}

// percent formats a share as a percentage, with decimals only if it is small. An unknown share becomes a dash.
function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = Math.min(Math.max(share, 0), 1) * 100;
  if (value > 0 && value < 0.1) return "<0.1";
  return value >= 9.95 || value === 0 ? value.toFixed(0) : value.toFixed(1);
}

// stageName formats the name of a stage or an engine for display.
function stageName(name) {
  return name.replaceAll("_", " ");
}

function plural(n, one, many) {
  return count(n) + " " + (n === 1 ? one : many);
}
