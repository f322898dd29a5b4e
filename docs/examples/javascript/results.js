// Reads results in JSON and in binary. docs/results.md explains the formats. Needs Node.js 18 or later, and no packages.
// As a program, it prints the body of a result message on its standard input as JSON:
//
//     node results.js < body

import { readFileSync } from "node:fs";
import { argv } from "node:process";
import { fileURLToPath } from "node:url";

// lines returns the index in the input and the result of each record in JSON. first is the header Millrace-First-Record.
export function lines(text, first = 0) {
  return text.trimEnd().split("\n").map((line, i) => {
    const result = JSON.parse(line);
    return [result.record ?? first + i, result];
  });
}

// results returns the index in the input and the status of each record, and for each operator the value of each record. The value of neardup
// is as in JSON, or null if the record isn't ok. Other values are arrays of numbers, which are 0 if the record isn't ok. For an operator of
// your own with byte strings, a value is such an array and the record's byte strings, back to back.
export function results(body) {
  if (body.length === 0) {
    return [[], [], {}]; // of a result without records
  }
  const reader = new Reader(body);
  const [magic, version, count] = [reader.text(4), reader.uint16(), reader.uint16()];
  if (magic !== "MILL" || version < 1 || version > 3) {
    throw new Error("not a binary result of version 1 to 3");
  }
  const [records, first] = [reader.uint32(), reader.uint32()];
  const values = {};
  if (version === 1) { // a message that is one record: the record of each operator follows its spec
    for (let i = 0; i < count; i++) {
      const { spec, size } = reader.operator();
      values[spec] = reader.values(spec, size, [0]);
    }
    return [[0], [0], values];
  }
  const operators = Array.from({ length: count }, () => reader.operator());
  const statuses = [...reader.bytes(records)];
  let indexes = statuses.map((_, i) => first + i);
  if (version === 3) { // of a filter, which may have left out records
    indexes = reader.uint32s(records);
  }
  for (const { spec, size } of operators) {
    values[spec] = reader.values(spec, size, statuses);
  }
  return [indexes, statuses, values];
}

// Reader reads the fields of a body one after another. They start at multiples of 4 bytes.
class Reader {
  constructor(body) {
    this.body = body;
    this.view = new DataView(body.buffer, body.byteOffset, body.byteLength);
    this.at = 0;
  }

  bytes(n) {
    if (this.at + n > this.body.length) {
      throw new Error("the body ends too early");
    }
    const start = this.at;
    this.at += padded(n);
    return this.body.subarray(start, start + n);
  }

  text(n) {
    return new TextDecoder().decode(this.bytes(n));
  }

  uint16() {
    this.at += 2;
    return this.view.getUint16(this.at - 2, true);
  }

  uint32() {
    this.at += 4;
    return this.view.getUint32(this.at - 4, true);
  }

  uint32s(n) {
    return Array.from({ length: n }, () => this.uint32());
  }

  // operator reads an operator's spec, and the length of its record with bit 31.
  operator() {
    const [length, size] = [this.uint32(), this.uint32()];
    return { spec: this.text(length), size };
  }

  // values reads the values of an operator.
  values(spec, size, statuses) {
    const stride = size & 0x7fffffff;
    const records = this.bytes(statuses.length * stride);
    let values = statuses.map((_, i) => numbersOf(records.subarray(i * stride, (i + 1) * stride)));
    if (size !== stride) { // byte strings follow
      const ends = this.uint32s(statuses.length + 1);
      const strings = this.bytes(ends.at(-1));
      values = values.map((numbers, i) => [numbers, strings.subarray(ends[i], ends[i + 1])]);
    }
    if (spec.startsWith("neardup?")) {
      values = values.map((value, i) => (statuses[i] ? null : neardup(...value)));
    }
    return values;
  }
}

// neardup returns a value of neardup as in JSON.
function neardup(numbers, also) {
  const first = positions(numbers)[0];
  if (first.sequence === 0) {
    return { duplicate_of: null };
  }
  return { duplicate_of: first, bands: numbers[4], also: positions(numbersOf(also)) };
}

// positions returns the positions in numbers, 4 for each. It is exact up to Number.MAX_SAFE_INTEGER.
function positions(numbers) {
  const found = [];
  for (let i = 0; i + 4 <= numbers.length; i += 4) {
    const [low, high, recordLow, recordHigh] = numbers.slice(i, i + 4);
    found.push({ sequence: high * 2 ** 32 + low, record: recordHigh * 2 ** 32 + recordLow });
  }
  return found;
}

// numbersOf returns the numbers of 32 bits in bytes.
function numbersOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: bytes.length >> 2 }, (_, i) => view.getUint32(4 * i, true));
}

function padded(n) {
  return (n + 3) & ~3;
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const body = readFileSync(0);
  console.log(JSON.stringify(body[0] === "{".charCodeAt(0) ? lines(body.toString()) : results(body)));
}
