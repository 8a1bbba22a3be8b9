// Which key a line names: the arithmetic of abc_calib/geometry/lines.py (formula, located).
"use strict";

const CORNER = -1, FIRST = 0, LAST = 1, DELIMITERS = 2;

function formula(line, site) {
  const {direction, segment, offset} = line;
  const slope = {diag: 1, anti: -1, vert: 0}[direction] * (line.stride ?? 1);
  const corner = segment === CORNER;
  if (corner || site !== "cross") {
    if (direction === "anti")
      return {origin: LAST, slope, shift: -offset, low: FIRST, high: LAST, leaves: corner};
    if (!corner && direction === "vert" && site === "encoder") {
      const delimiter = DELIMITERS + segment;
      return {origin: delimiter, slope: 0, shift: 0, low: delimiter, high: delimiter, leaves: false};
    }
    return {origin: FIRST, slope, shift: offset, low: FIRST, high: LAST, leaves: corner};
  }
  const low = DELIMITERS + Math.max(segment - 1, 0), high = DELIMITERS + segment;
  if (direction === "diag") return {origin: low, slope, shift: 1 + offset, low, high, leaves: false};
  const shift = direction === "anti" ? -1 - offset : -offset;
  return {origin: high, slope, shift, low, high, leaves: false};
}

// The key of a line in a row, or null where it has left the matrix.
function keyOf(line, site, anchors, row) {
  const named = formula(line, site);
  const low = anchors[named.low], high = anchors[named.high];
  const key = anchors[named.origin] + named.slope * row + named.shift;
  if (named.leaves && (key < low || key > high)) return null;
  return Math.min(Math.max(key, low), high);
}

// The keys of a head's lines in a row with their bias; of lines that meet the highest counts.
function keysOf(lines, site, anchors, row) {
  const found = new Map();
  for (const line of lines) {
    const key = keyOf(line, site, anchors, row);
    if (key !== null && !(found.get(key) >= line.value)) found.set(key, line.value);
  }
  return found;
}

// What the lines of a row are counted from; the delimiters are those of the source.
function anchorsOf(site, row, keys, delimiters) {
  return site === "self" ? [0, row] : [0, keys - 1, ...delimiters];
}
