"""Reads results in binary, for operators without byte strings. See docs/results.md. Needs only the standard library.

As a program, it prints the body of a result message on its standard input as JSON:

    python3 results.py < body
"""

import json
import struct
import sys


def padded(n):
    """Returns n, rounded up to a multiple of 4."""
    return (n + 3) // 4 * 4


def results(body):
    """Returns the index of the body's first record, the status of each record, and for each operator the numbers of each record."""
    if not body:  # of a frame without records
        return 0, [], {}
    magic, version, count = struct.unpack_from("<4sHH", body)
    if magic != b"MILL" or version not in (1, 2):
        raise ValueError("not a binary result of version 1 or 2")
    at, numbers = 16, {}
    if version == 1:  # a message that is one record: each operator's spec is followed by its record
        for _ in range(count):
            spec, size, at = described(body, at)
            numbers[spec] = [struct.unpack_from(f"<{size // 4}I", body, at)]
            at += padded(size)
        return 0, [0], numbers
    records, first = struct.unpack_from("<II", body, 8)
    operators = []
    for _ in range(count):
        spec, stride, at = described(body, at)
        operators.append((spec, stride))
    statuses = list(body[at : at + records])
    at += padded(records)
    for spec, stride in operators:
        numbers[spec] = [struct.unpack_from(f"<{stride // 4}I", body, at + i * stride) for i in range(records)]
        at += padded(records * stride)
    return first, statuses, numbers


def described(body, at):
    """Returns the spec of the operator that is described there, the length of its record, and the position behind."""
    spec, size = struct.unpack_from("<II", body, at)
    if size >> 31:
        raise ValueError("an operator with byte strings")
    return body[at + 8 : at + 8 + spec].decode(), size, at + 8 + padded(spec)


if __name__ == "__main__":
    print(json.dumps(results(sys.stdin.buffer.read())))
