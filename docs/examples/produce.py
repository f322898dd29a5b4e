"""Publishes the lines of its standard input as frames. Needs nats-py, and pyarrow for --arrow.

    python3 produce.py [--url nats://127.0.0.1:4222] [--arrow] ingest.web < documents.txt

The worker needs MILLRACE_FRAMING=auto.
"""

import argparse
import asyncio
import sys

import nats

import frames

# A frame of this size costs the server little per record, and stays below the usual max_payload of 1 MiB.
FRAME_BYTES = 512 * 1024


def batches(lines):
    """Yields lists of records with about FRAME_BYTES together."""
    records, size = [], 0
    for line in lines:
        record = line.rstrip(b"\r\n")
        if records and size + len(record) > FRAME_BYTES:
            yield records
            records, size = [], 0
        records.append(record)
        size += len(record) + 8  # what a framing adds
    if records:
        yield records


async def main():
    parser = argparse.ArgumentParser(description="publishes the lines of standard input as frames")
    parser.add_argument("--url", default="nats://127.0.0.1:4222")
    parser.add_argument("--arrow", action="store_true", help="send Arrow IPC streams")
    parser.add_argument("subject")
    args = parser.parse_args()
    framing = "arrow" if args.arrow else "newline_delimited"

    nc = await nats.connect(args.url)
    js = nc.jetstream()
    count = messages = 0
    for records in batches(sys.stdin.buffer):
        body = frames.FRAMINGS[framing](records)
        await js.publish(args.subject, body, headers={"Content-Type": frames.CONTENT_TYPES[framing]})
        count, messages = count + len(records), messages + 1
    await nc.close()
    print(f"{count} records in {messages} messages")


if __name__ == "__main__":
    asyncio.run(main())
