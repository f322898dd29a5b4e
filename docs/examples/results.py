"""Reads results in JSON, in binary for operators without byte strings, and annotated documents. See docs/results.md.

Needs only the standard library. As a program, it prints the body of a result message on its standard input as JSON. For annotated
documents, name the value of the header Millrace-Annotation:

    python3 results.py [millrace] < body
"""

import json
import struct
import sys


def lines(body, first=0):
    """Returns the index in the input and the result of each record in JSON. first is the header Millrace-First-Record."""
    found = [json.loads(line) for line in body.splitlines()]
    return [(result.get("record", first + i), result) for i, result in enumerate(found)]


def documents(body, annotation):
    """Returns each annotated document, and its result. annotation is the header Millrace-Annotation."""
    found = [json.loads(line) for line in body.splitlines()]
    return [(document, document.pop(annotation)) for document in found]


def padded(n):
    """Returns n, rounded up to a multiple of 4."""
    return (n + 3) // 4 * 4


def results(body):
    """Returns the index in the input and the status of each record, and for each operator the numbers of each record."""
    if not body:  # of a result without records
        return [], [], {}
    magic, version, count = struct.unpack_from("<4sHH", body)
    if magic != b"MILL" or version not in (1, 2, 3):
        raise ValueError("not a binary result of version 1 to 3")
    at, numbers = 16, {}
    if version == 1:  # a message that is one record: each operator's spec is followed by its record
        for _ in range(count):
            spec, size, at = described(body, at)
            numbers[spec] = [struct.unpack_from(f"<{size // 4}I", body, at)]
            at += padded(size)
        return [0], [0], numbers
    records, first = struct.unpack_from("<II", body, 8)
    operators = []
    for _ in range(count):
        spec, stride, at = described(body, at)
        operators.append((spec, stride))
    statuses = list(body[at : at + records])
    at += padded(records)
    indexes = list(range(first, first + records))
    if version == 3:  # of a filter, which may have left out records
        indexes = list(struct.unpack_from(f"<{records}I", body, at))
        at += 4 * records
    for spec, stride in operators:
        numbers[spec] = [struct.unpack_from(f"<{stride // 4}I", body, at + i * stride) for i in range(records)]
        at += padded(records * stride)
    return indexes, statuses, numbers


def described(body, at):
    """Returns the spec of the operator that is described there, the length of its record, and the position behind."""
    spec, size = struct.unpack_from("<II", body, at)
    if size >> 31:
        raise ValueError("an operator with byte strings")
    return body[at + 8 : at + 8 + spec].decode(), size, at + 8 + padded(spec)


if __name__ == "__main__":
    content = sys.stdin.buffer.read()
    if len(sys.argv) > 1:
        print(json.dumps(documents(content, sys.argv[1])))
    else:
        print(json.dumps(lines(content) if content.startswith(b"{") else results(content)))
