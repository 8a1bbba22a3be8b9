// Small helpers for elements, and the two charts.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

// An element with attributes and children; names with a colon before them are SVG.
function make(name, attributes = {}, ...children) {
  const svg = name.startsWith(":");
  const element = svg ? document.createElementNS(SVG, name.slice(1)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// Tabs as the ARIA practices have them: arrows move, the shown panel is the chosen one's.
function tabs(label, names, show) {
  const buttons = names.map((name, i) =>
    make("button", {type: "button", role: "tab", onclick: () => choose(i)}, name));
  const choose = (chosen, focus = false) => {
    buttons.forEach((button, i) => {
      button.setAttribute("aria-selected", i === chosen);
      button.tabIndex = i === chosen ? 0 : -1;
    });
    if (focus) buttons[chosen].focus();
    show(chosen);
  };
  const list = make("div", {role: "tablist", "aria-label": label, class: "tabs"}, buttons);
  list.addEventListener("keydown", (event) => {
    const at = buttons.findIndex((button) => button.getAttribute("aria-selected") === "true");
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose((to + buttons.length) % buttons.length, true);
  });
  return {list, buttons, choose};
}

// Curves of {name, points: [{x, y, low, high, text}]}; arrows and the pointer tell the numbers.
// ``wide``: drawn over the whole page.
function chart({series, xLabel, yLabel, log = false, mark = null, yMax = 100, label, yTicks, wide = false}) {
  const width = innerWidth < 600 ? 400 : wide ? 900 : 520, height = 260, left = 46, right = 20, top = mark ? 26 : 12, bottom = 40;
  const xs = [...new Set(series.flatMap((one) => one.points.map((point) => point.x)))].sort((a, b) => a - b);
  const scale = log ? Math.log10 : (x) => x;
  const from = Math.min(xs[0], mark?.x ?? xs[0]), to = Math.max(xs.at(-1), mark?.x ?? 0);
  const low = scale(from), span = scale(to) - low || 1;
  const px = (x) => left + ((scale(x) - low) / span) * (width - left - right - 12) + 6;
  const py = (y) => top + (1 - y / yMax) * (height - top - bottom);
  const svg = make(":svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, tabindex: 0, class: "chart"});
  for (const y of yTicks)
    svg.append(
      make(":line", {x1: left, x2: width - right, y1: py(y), y2: py(y), class: "grid"}),
      make(":text", {x: left - 8, y: py(y) + 4, class: "tick end"}, String(y)));
  for (const x of log ? spread(xs, px) : roundOnes(from, to, innerWidth < 600 ? 4 : 6)) svg.append(make(":text", {x: px(x), y: height - bottom + 18, class: "tick middle"}, x.toLocaleString("en")));
  svg.append(
    make(":text", {x: (left + width) / 2, y: height - 4, class: "tick middle"}, xLabel),
    make(":text", {x: 12, y: (top + height - bottom) / 2, class: "tick middle", transform: `rotate(-90 12 ${(top + height - bottom) / 2})`}, yLabel));
  if (mark) svg.append(
    make(":line", {x1: px(mark.x), x2: px(mark.x), y1: top, y2: height - bottom, class: "mark"}),
    make(":text", {x: Math.max(px(mark.x) - 4, left - 30), y: 13, class: "tick"}, `↓ ${mark.text}`));
  const lane = lanes(series, scale), apart = Math.min(0.04, 0.2 / Math.max(1, ...lane));
  series.forEach((one, i) => curve(svg, one, i, px, (y) => py(yMax / 2 + (y - yMax / 2) * (1 - apart * lane[i]))));
  const told = make("output", {class: "told", "aria-live": "polite"}, "Point at the chart or use the arrow keys to read the numbers.");
  const cursor = make(":line", {class: "cursor", y1: top, y2: height - bottom, visibility: "hidden"});
  svg.append(cursor);
  let at = 0;
  const tell = (index) => {
    at = Math.max(0, Math.min(xs.length - 1, index));
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, px(xs[at]));
    cursor.setAttribute("visibility", "visible");
    const parts = series.flatMap((one) => one.points.filter((point) => point.x === xs[at]).map((point) => `${one.name}: ${point.text}`));
    told.textContent = `${xLabel} ${xs[at].toLocaleString("en")} — ${parts.join("; ")}`;
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * width;
    tell(xs.reduce((best, value, i) => (Math.abs(px(value) - x) < Math.abs(px(xs[best]) - x) ? i : best), 0));
  });
  svg.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step) { event.preventDefault(); tell(at + step); }
  });
  const legend = make("ul", {class: "legend"}, series.map((one, i) => make("li", {}, symbol(i), make("span", {}, one.name))),
    lane.some(Boolean) ? make("li", {class: "by"}, "(equal curves set apart)") : null);
  return make("div", {class: "figure"}, svg, series.length > 1 ? legend : null, told);
}

const SHAPES = [
  (x, y, r) => make(":circle", {cx: x, cy: y, r}),
  (x, y, r) => make(":rect", {x: x - r, y: y - r, width: 2 * r, height: 2 * r}),
  (x, y, r) => make(":path", {d: `M${x} ${y - 1.3 * r}L${x + 1.2 * r} ${y + r}H${x - 1.2 * r}Z`}),
  (x, y, r) => make(":path", {d: `M${x} ${y - 1.4 * r}L${x + 1.4 * r} ${y}L${x} ${y + 1.4 * r}L${x - 1.4 * r} ${y}Z`}),
];

function symbol(i) {
  const mark = SHAPES[i % SHAPES.length](8, 8, 4);
  mark.setAttribute("class", `${i ? "dot" : "dot hollow"} s${i % 6}`);
  return make(":svg", {viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true"}, mark);
}

function curve(svg, one, i, px, py) {
  const points = [...one.points].sort((a, b) => a.x - b.x), group = make(":g", {class: `s${i % 6}`});
  const line = (value) => points.map((point, k) => `${k ? "L" : "M"}${px(point.x).toFixed(1)} ${py(value(point)).toFixed(1)}`).join("");
  for (const point of points)
    if (point.low !== undefined) group.append(make(":line", {x1: px(point.x), x2: px(point.x), y1: py(point.low), y2: py(point.high), class: "range"}));
  group.append(make(":path", {d: line((point) => point.y), class: "curve"}));
  let last = -Infinity;
  for (const point of points) {
    if (px(point.x) - last < 7) continue;
    last = px(point.x);
    // earlier curves have larger, hollow markers: equal curves stay visible
    const mark = SHAPES[i % SHAPES.length](last, py(point.y), i ? 3 : 4.5);
    mark.setAttribute("class", i ? "dot" : "dot hollow");
    group.append(mark);
  }
  svg.append(group);
}

// A lane for each series, such that those of one lane never run along each other, as in reporting/looks.py.
function lanes(series, scale) {
  const curves = series.map((one) => [...one.points].sort((a, b) => a.x - b.x)), found = [];
  const at = (curve, x) => {
    const after = Math.max(1, curve.findIndex((point) => point.x >= x)), [a, b] = [curve[after - 1], curve[after] ?? curve[0]];
    return a.x === b.x ? a.y : a.y + ((b.y - a.y) * (scale(x) - scale(a.x))) / (scale(b.x) - scale(a.x));
  };
  const together = (one, other) => {
    const from = Math.max(one[0].x, other[0].x), to = Math.min(one.at(-1).x, other.at(-1).x);
    const xs = [...new Set([...one, ...other].map((point) => point.x))].filter((x) => from <= x && x <= to).sort((a, b) => a - b);
    const meets = xs.map((x) => Math.abs(at(one, x) - at(other, x)) <= 1.5);
    return one.length === 1 || other.length === 1 ? meets.some(Boolean) : meets.some((meet, i) => i && meet && meets[i - 1]);
  };
  curves.forEach((mine, i) => {
    const beside = new Set(found.filter((_, k) => together(mine, curves[k])));
    let lane = 0;
    while (beside.has(lane)) lane++;
    found.push(lane);
  });
  return found;
}

// Round numbers from the first to the last value, at most so many.
function roundOnes(from, to, most) {
  const steps = Array.from({length: 30}, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3));
  const step = steps.find((one) => (to - from) / one <= most) ?? to - from, first = Math.ceil(from / step) * step;
  return Array.from({length: Math.floor((to - first) / step) + 1}, (_, i) => first + i * step);
}

// Which values are named on an axis: the ends, then round ones, as many as have room.
function spread(xs, px) {
  const rank = (x) => (x === xs[0] || x === xs.at(-1) ? 0 : /^[125]0*$/.test(x) ? 1 : 2), shown = [];
  const half = (x) => 4 * x.toLocaleString("en").length + 5;
  for (const x of [...xs].sort((a, b) => rank(a) - rank(b)))
    if (shown.every((other) => Math.abs(px(x) - px(other)) > half(x) + half(other))) shown.push(x);
  return shown;
}
