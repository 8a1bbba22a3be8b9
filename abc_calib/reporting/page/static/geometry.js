// Which key a line names: the arithmetic of abc_calib/geometry/lines.py (formula, Formula.key).

const CORNER = -1, FIRST = 0, LAST = 1, DELIMITERS = 2;

function formula(line, site) {
  const {direction, segment, offset} = line;
  const slope = {diag: 1, anti: -1, vert: 0}[direction] * (line.stride ?? 1);
  const beta = line.beta ?? 0, step = line.part_step ?? 0, corner = segment === CORNER;
  const named = (origin, by, shift, low, high, leaves = false, down = 0, on = 0) =>
    ({origin, slope: by, shift, low, high, leaves, down, step: on});
  if (site === "self" && !corner) {
    const opened = segment ? DELIMITERS + segment : FIRST, closed = segment ? DELIMITERS + segment - 1 : LAST;
    if (direction === "anti") return named(closed, slope, (segment ? -1 : 0) - offset, opened, closed);
    return named(opened, slope, offset, opened, closed, false, beta);
  }
  if (corner || site !== "cross") {
    if (direction === "anti") return named(LAST, slope, -offset, FIRST, LAST, corner);
    if (!corner && direction === "vert") return named(DELIMITERS + segment, 0, 0, DELIMITERS + segment, DELIMITERS + segment);
    return named(FIRST, slope, offset, FIRST, LAST, corner);
  }
  const opened = DELIMITERS + Math.max(segment - 1, 0), closed = DELIMITERS + segment;
  if (direction === "diag") return named(opened, slope, 1 + offset, opened, closed, false, beta, step);
  return named(closed, slope, direction === "anti" ? -1 - offset : -offset, opened, closed, false, -beta, step);
}

// The key of a line in a column of a row of the output, or null where it has left the matrix.
function keyOf(line, site, anchors, {column, row}) {
  const named = formula(line, site), last = anchors.length - 1;
  const anchor = (at) => anchors[at < DELIMITERS || !named.step ? at : Math.min(Math.max(at + named.step * row, DELIMITERS), last)];
  const low = anchor(named.low), high = anchor(named.high);
  const key = anchor(named.origin) + named.slope * column + named.shift + named.down * row;
  return named.leaves && (key < low || key > high) ? null : Math.min(Math.max(key, low), high);
}

// The keys of a head's lines with their bias; of lines that meet the highest counts.
function keysOf(lines, site, anchors, at) {
  const biases = new Map();
  for (const line of lines) {
    const key = keyOf(line, site, anchors, at);
    if (key !== null && !(biases.get(key) >= line.value)) biases.set(key, line.value);
  }
  return biases;
}

// Where what is read next stands in an output of one row or, closed by ``closes``, of several.
class Grid {
  constructor(closes = null) {
    Object.assign(this, {closes, opens: [], position: -1});
  }

  read(token) {
    this.position++;
    if (!this.position || (this.closes !== null && token === this.closes)) this.opens.push(this.position);
    this.row = this.opens.length - 1;
    this.column = this.position - this.opens[this.row];
  }

  // What lines over the output are counted from: its row, itself, and what opened the rows above.
  anchors(above) {
    const opened = (back) => this.opens[Math.max(0, this.row - back)];
    return [opened(0), this.position, ...Array.from({length: above + 1}, (_, back) => opened(back))];
  }
}
