"""Reads results in JSON and in binary, and annotated documents. See docs/results.md.

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
    """Returns the index in the input and the status of each record, and for each operator the value of each record.

    The value of neardup is as in JSON, or None if the record isn't ok. Other values are tuples of numbers, which are 0 if the record
    isn't ok. For an operator of your own with byte strings, a value is such a tuple and the record's byte strings, back to back.
    """
    if not body:  # of a result without records
        return [], [], {}
    magic, version, count = struct.unpack_from("<4sHH", body)
    if magic != b"MILL" or version not in (1, 2, 3):
        raise ValueError("not a binary result of version 1 to 3")
    at, values = 16, {}
    if version == 1:  # a message that is one record: the record of each operator follows its spec
        for _ in range(count):
            spec, size, at = described(body, at)
            values[spec], at = values_of(body, at, spec, size, [0])
        return [0], [0], values
    records, first = struct.unpack_from("<II", body, 8)
    operators = []
    for _ in range(count):
        spec, size, at = described(body, at)
        operators.append((spec, size))
    statuses = list(body[at : at + records])
    at += padded(records)
    indexes = list(range(first, first + records))
    if version == 3:  # of a filter, which may have left out records
        indexes = list(struct.unpack_from(f"<{records}I", body, at))
        at += 4 * records
    for spec, size in operators:
        values[spec], at = values_of(body, at, spec, size, statuses)
    return indexes, statuses, values


def described(body, at):
    """Returns the spec of the operator that is described there, the length of its record with bit 31, and the position behind."""
    spec, size = struct.unpack_from("<II", body, at)
    return body[at + 8 : at + 8 + spec].decode(), size, at + 8 + padded(spec)


def values_of(body, at, spec, size, statuses):
    """Returns the values of an operator, which begin there, and the position behind them."""
    count, stride = len(statuses), size & 0x7FFFFFFF
    values = [struct.unpack_from(f"<{stride // 4}I", body, at + i * stride) for i in range(count)]
    at += padded(count * stride)
    if size != stride:  # byte strings follow
        ends = struct.unpack_from(f"<{count + 1}I", body, at)
        at += 4 * (count + 1)
        values = [(numbers, body[at + start : at + end]) for numbers, start, end in zip(values, ends, ends[1:])]
        at += padded(ends[-1])
    if spec.startswith("neardup?"):
        values = [None if status else neardup(*value) for value, status in zip(values, statuses)]
    return values, at


def neardup(numbers, also):
    """Returns a value of neardup as in JSON."""
    low, high, record_low, record_high, bands, _ = numbers
    sequence, record = high << 32 | low, record_high << 32 | record_low
    if not sequence:
        return {"duplicate_of": None}
    others = [{"sequence": s, "record": r} for s, r in struct.iter_unpack("<QQ", also)]
    return {"duplicate_of": {"sequence": sequence, "record": record}, "bands": bands, "also": others}


if __name__ == "__main__":
    content = sys.stdin.buffer.read()
    if len(sys.argv) > 1:
        found = documents(content, sys.argv[1])
    else:
        found = lines(content) if content.startswith(b"{") else results(content)
    print(json.dumps(found, separators=(",", ":"), default=bytes.hex))
