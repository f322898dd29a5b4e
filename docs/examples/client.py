"""Publishes each of its arguments as an input, and prints what became of it: its result, or its dead letter. Needs nats-py.

    python3 client.py [--url nats://127.0.0.1:4222] 'some text' 'some other text'
"""

import argparse
import asyncio
import json
import time

import nats
import nats.errors


async def publish(js, subject, id, payload):
    """Stores a payload, and returns which input it is."""
    ack = await js.publish(subject, payload, headers={"Nats-Msg-Id": id})
    return ack.stream, ack.seq


def input_of(message):
    """Returns the input of a result or of a dead letter. For any other message it returns None."""
    headers = message.headers or {}
    if "Millrace-Sequence" not in headers:
        return None
    return headers["Millrace-Stream"], int(headers["Millrace-Sequence"])


def outcome(message):
    """Describes a message. Every dead letter has a reason, and no result has one. A filter may leave nothing of an input."""
    headers = message.headers
    if "Millrace-Reason" in headers:
        return f"dead letter, {headers['Millrace-Reason']}: {headers['Millrace-Error']}"
    if headers.get("Millrace-Records") == "0":
        return f"nothing is left; filtered records: {headers.get('Millrace-Filtered', 0)}"
    kind = headers.get("Content-Type")
    if kind not in ("application/json", "application/x-ndjson"):
        return f"result of {len(message.data)} bytes, {kind}"  # binary or Arrow
    if "Millrace-Annotation" in headers:
        results = [json.loads(line)[headers["Millrace-Annotation"]] for line in message.data.splitlines()]
        return "documents with " + " ".join(json.dumps(result, separators=(",", ":")) for result in results)
    return "result " + message.data.decode()


async def follow(js, stream, filter, handle):
    """Calls handle for each message of a stream that the filter matches."""
    consumer = await js.pull_subscribe(filter, durable="example", stream=stream)
    while True:
        try:
            messages = await consumer.fetch(100, timeout=5)
        except nats.errors.TimeoutError:
            continue  # nothing new
        for message in messages:
            handle(message)
            await message.ack()  # if that is lost, the message comes again


async def collect(js, inputs):
    """Returns the outcome of each input."""
    waiting, outcomes, done = set(inputs), {}, asyncio.Event()

    def handle(message):
        of = input_of(message)
        if of in waiting:  # otherwise it is of an input of somebody else or of none, or comes a second time
            waiting.remove(of)
            outcomes[of] = outcome(message)
        if not waiting:
            done.set()

    filters = {"RESULTS": "results.>", "RESULTS_DEADLETTER": "deadletter.>"}
    following = [asyncio.create_task(follow(js, stream, filter, handle)) for stream, filter in filters.items()]
    finished = asyncio.create_task(done.wait())
    await asyncio.wait([*following, finished], timeout=60, return_when=asyncio.FIRST_COMPLETED)
    failed = [task for task in following if task.done()]
    for task in [*following, finished]:
        task.cancel()
    await asyncio.gather(*following, finished, return_exceptions=True)
    for task in failed:
        task.result()  # raises what ended it
    return outcomes


async def main():
    parser = argparse.ArgumentParser(description="publishes payloads and prints what became of them")
    parser.add_argument("--url", default="nats://127.0.0.1:4222")
    parser.add_argument("payload", nargs="+")
    args = parser.parse_args()

    nc = await nats.connect(args.url)
    js = nc.jetstream()
    started, inputs = time.time_ns(), []
    for i, payload in enumerate(args.payload):
        # Use an id of your data if it has one.
        inputs.append(await publish(js, "ingest.example", f"{started}-{i}", payload.encode()))
    outcomes = await collect(js, inputs)
    for stream, sequence in inputs:
        print(f"input {sequence} of {stream}: {outcomes.get((stream, sequence), 'nothing yet')}")
    await nc.close()


if __name__ == "__main__":
    asyncio.run(main())
