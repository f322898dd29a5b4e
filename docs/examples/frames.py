"""Frames: many records in one message. See docs/frames.md.

Each function takes records, which are bytes, and returns the body of a message. As a program, it writes the lines of
its standard input as one frame:

    python3 frames.py length_delimited < lines.txt > frame
"""

import struct
import sys

# The header Content-Type by which a worker with MILLRACE_FRAMING=auto splits a message.
CONTENT_TYPES = {
    "newline_delimited": "application/x-ndjson",
    "length_delimited": "application/vnd.millrace.length-delimited",
    "varint_length_delimited": "application/vnd.millrace.varint-length-delimited",
    "arrow": "application/vnd.apache.arrow.stream",
}


def newline_delimited(records):
    """Returns a frame for MILLRACE_FRAMING=newline_delimited. Each record ends with a line feed."""
    for i, record in enumerate(records):
        if b"\n" in record or record.endswith(b"\r"):
            raise ValueError(f"record {i} has a line feed, or ends with a carriage return: use another framing")
    return b"".join(record + b"\n" for record in records)


def length_delimited(records):
    """Returns a frame for MILLRACE_FRAMING=length_delimited. Each record follows its length, a big-endian uint32."""
    return b"".join(struct.pack(">I", len(record)) + record for record in records)


def varint_length_delimited(records):
    """Returns a frame for MILLRACE_FRAMING=varint_length_delimited. Each record follows its length, a protobuf varint."""
    frame = bytearray()
    for record in records:
        length = len(record)
        while length > 0x7F:
            frame.append(length & 0x7F | 0x80)
            length >>= 7
        frame.append(length)
        frame += record
    return bytes(frame)


def arrow(records):
    """Returns a frame for MILLRACE_FRAMING=arrow: an Arrow IPC stream with one binary column."""
    import pyarrow as pa

    batch = pa.record_batch([pa.array(records, type=pa.binary())], names=["record"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


FRAMINGS = {f.__name__: f for f in (newline_delimited, length_delimited, varint_length_delimited, arrow)}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in FRAMINGS:
        sys.exit(f"usage: frames.py {'|'.join(FRAMINGS)} < lines")
    records = [line.rstrip(b"\n") for line in sys.stdin.buffer]
    sys.stdout.buffer.write(FRAMINGS[sys.argv[1]](records))


if __name__ == "__main__":
    main()
