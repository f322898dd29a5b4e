"""Collects the Arrow results of frames and sums them up. Needs nats-py and pyarrow; polars or duckdb if you choose them.

    python3 consume.py [--url nats://127.0.0.1:4222] [--with pyarrow|polars|duckdb] [--records N] results.web

The worker needs MILLRACE_RESULT_FORMAT=arrow. The program ends after N records, or when no result has come for 5 seconds.
"""

import argparse
import asyncio

import nats
import nats.errors
import pyarrow as pa


def table_of(message):
    """Returns the rows of a result message. Each part of a result is a complete Arrow stream."""
    source = pa.BufferReader(message.data)
    encoding = (message.headers or {}).get("Content-Encoding")
    if encoding:  # zstd or lz4; pyarrow can't read a stream of snappy
        source = pa.CompressedInputStream(source, encoding)
    return pa.ipc.open_stream(source).read_all()


def complete(message, parts):
    """Returns all messages of a result if this is its last one. Otherwise it keeps the message in parts and returns none.

    Workers may have cut a result into parts in several ways, which have different Millrace-Cut headers. The stream has the last part of
    one of them.
    """
    headers = message.headers or {}
    if "Millrace-Sequence" not in headers:
        return []  # no result, such as a delete marker of the server
    part, _, count = headers.get("Millrace-Part", "1/1").partition("/")
    cuts = parts.setdefault((headers.get("Millrace-Stream"), headers.get("Millrace-Sequence")), {})
    cut = cuts.setdefault(headers.get("Millrace-Cut"), {})
    cut[int(part)] = message
    if part != count:
        return []
    del parts[headers.get("Millrace-Stream"), headers.get("Millrace-Sequence")]
    if len(cut) < int(count):
        raise ValueError(f"{int(count) - len(cut)} parts of a result are missing: {headers}")
    return [cut[i] for i in sorted(cut)]


async def collect(url, subject, wanted):
    """Returns the rows of all results on a subject."""
    nc = await nats.connect(url)
    sub = await nc.jetstream().subscribe(subject, ordered_consumer=True)
    tables, count, parts = [], 0, {}
    while wanted is None or count < wanted:
        try:
            message = await sub.next_msg(timeout=5)
        except nats.errors.TimeoutError:
            break
        for part in complete(message, parts):
            if part.data:  # a filter may leave nothing of a message
                tables.append(table_of(part))
                count += tables[-1].num_rows
    await nc.close()
    return pa.concat_tables(tables) if tables else None


def with_pyarrow(records):
    return records.group_by("status").aggregate([("bytes", "count"), ("bytes", "sum")]).to_pylist()


def with_polars(records):
    import polars

    frame = polars.from_arrow(records)
    return frame.group_by("status").agg(polars.len().alias("bytes_count"), polars.col("bytes").sum().alias("bytes_sum")).to_dicts()


def with_duckdb(records):
    import duckdb  # finds the variable records by its name

    rows = duckdb.sql("select status, count(bytes), sum(bytes) from records group by status").fetchall()
    return [{"status": s, "bytes_count": n, "bytes_sum": int(total)} for s, n, total in rows]


TOOLS = {"pyarrow": with_pyarrow, "polars": with_polars, "duckdb": with_duckdb}


def main():
    parser = argparse.ArgumentParser(description="collects the Arrow results of frames and sums them up")
    parser.add_argument("--url", default="nats://127.0.0.1:4222")
    parser.add_argument("--with", dest="tool", choices=TOOLS, default="pyarrow")
    parser.add_argument("--records", type=int, help="end after so many records")
    parser.add_argument("subject")
    args = parser.parse_args()

    records = asyncio.run(collect(args.url, args.subject, args.records))
    if records is None:
        print("no results")
        return
    for row in TOOLS[args.tool](records):
        print(f"{row['status']}: {row['bytes_count']} records of {row['bytes_sum']} bytes")


if __name__ == "__main__":
    main()
