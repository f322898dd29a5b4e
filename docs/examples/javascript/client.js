// Publishes each of its arguments as an input, and prints what became of it: its result, or its dead letter. docs/protocol.md explains it.
// Needs Node.js 18 or later.
//
//     npm ci
//     node client.js nats://127.0.0.1:4222 'some text' 'some other text'

import { AckPolicy, jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";

// publish stores a payload, and returns the input's sequence and stream.
async function publish(js, subject, id, payload) {
  const ack = await js.publish(subject, payload, { msgID: id });
  return `${ack.seq} of ${ack.stream}`;
}

// inputOf returns the input of a result or of a dead letter. For any other message it returns undefined.
function inputOf(message) {
  const sequence = message.headers?.get("Millrace-Sequence");
  return sequence ? `${sequence} of ${message.headers.get("Millrace-Stream")}` : undefined;
}

// outcome describes a message. Every dead letter has a reason, and no result has one. A filter may leave nothing of an input.
function outcome(message) {
  const reason = message.headers.get("Millrace-Reason");
  if (reason) {
    return `dead letter, ${reason}: ${message.headers.get("Millrace-Error")}`;
  }
  if (message.headers.get("Millrace-Records") === "0") {
    return `nothing is left; filtered records: ${message.headers.get("Millrace-Filtered") || 0}`;
  }
  const type = message.headers.get("Content-Type");
  if (!["application/json", "application/x-ndjson"].includes(type)) {
    return `result of ${message.data.length} bytes, ${type}`; // binary or Arrow
  }
  const annotation = message.headers.get("Millrace-Annotation");
  if (!annotation) {
    return `result ${message.string()}`;
  }
  const documents = message.string().trimEnd().split("\n").map((line) => JSON.parse(line));
  return `documents with ${documents.map((document) => JSON.stringify(document[annotation])).join(" ")}`;
}

// follow calls handle for each message of a stream that the filter matches, and returns a function that stops it.
async function follow(js, stream, filter, handle) {
  const jsm = await js.jetstreamManager();
  await jsm.consumers.add(stream, { durable_name: "example", filter_subject: filter, ack_policy: AckPolicy.Explicit });
  const consumer = await js.consumers.get(stream, "example");
  const messages = await consumer.consume({
    callback: (message) => {
      handle(message);
      message.ack(); // if this is lost, the server redelivers the message
    },
  });
  return () => messages.close();
}

// collect returns the outcome of each input.
async function collect(js, inputs) {
  const waiting = new Set(inputs);
  const outcomes = new Map();
  let finish;
  const finished = new Promise((resolve) => {
    finish = resolve;
    setTimeout(resolve, 60_000).unref();
  });
  const handle = (message) => {
    const input = inputOf(message);
    if (waiting.delete(input)) { // otherwise it is of an input of somebody else or of none, or comes a second time
      outcomes.set(input, outcome(message));
    }
    if (waiting.size === 0) {
      finish();
    }
  };
  const ends = [await follow(js, "RESULTS", "results.>", handle), await follow(js, "RESULTS_DEADLETTER", "deadletter.>", handle)];
  await finished;
  await Promise.all(ends.map((end) => end()));
  return outcomes;
}

const [url, ...payloads] = process.argv.slice(2);
if (payloads.length === 0) {
  console.error("usage: node client.js URL PAYLOAD...");
  process.exit(2);
}
const nc = await connect({ servers: url });
const js = jetstream(nc);
const started = Date.now();
const inputs = [];
for (const [i, payload] of payloads.entries()) {
  inputs.push(await publish(js, "ingest.example", `${started}-${i}`, payload)); // use an id of your data if it has one
}
const outcomes = await collect(js, inputs);
for (const input of inputs) {
  console.log(`input ${input}: ${outcomes.get(input) ?? "nothing yet"}`);
}
await nc.drain();
