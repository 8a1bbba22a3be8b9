// What the heads look at: averaged attention, the lines kept from it, and the bias they make.
"use strict";

const SITES = {cross: "Cross-attention: to the source", self: "Self-attention: to what was written", encoder: "Encoder"};

// The tokens of one problem of a length, and where the delimiters stand.
function shapeAt(heads, length, site) {
  const shape = heads.shapes[length - 1], {source, closes} = shape;
  const written = shape.written ?? Array.from({length: shape.steps - 1}, (_, i) => `y${i}`);
  const rows = site === "encoder" ? source : [...written, source.at(-1)];
  const keys = site === "self" ? [source[0], ...written] : source;
  const places = shape.written && site !== "encoder" ? placesOf(keys.length ? ["$", ...shape.written] : []) : null;
  return {rows, keys, closes, places};
}

// Where each row of an output of several rows stands, whose rows ``|`` closes.
function placesOf(read) {
  const grid = new Grid("|");
  return read.map((token) => Object.assign(new Grid(), grid.read(token), {opens: [...grid.opens]}));
}

// An image of cells {row, key, value from 0 to 1}, with names of its first and last key; ``most`` is the darkest value.
function grid(rows, keys, cells, kind, label, causal = false, most = 1) {
  const svg = make(":svg", {viewBox: `0 0 ${keys.length} ${rows.length}`, preserveAspectRatio: "none", class: `heat ${kind}`, role: "img", "aria-label": label});
  svg.append(make(":rect", {width: keys.length, height: rows.length, class: "paper"}));
  if (causal) svg.append(make(":path", {class: "unseen", d: rows.map((_, i) => `M${i + 1} ${i}H${keys.length}V${i + 1}H${i + 1}Z`).join("")}));
  for (const {row, key, value} of cells) {
    const cell = make(":rect", {x: key, y: row, width: 1, height: 1, "fill-opacity": Math.max(value / most, 0.06).toFixed(2)});
    cell.append(make(":title", {}, `${rows[row]} reads ${keys[key]}: ${value.toFixed(2)}`));
    svg.append(cell);
  }
  return make("div", {class: "image"}, svg,
    make("div", {class: "names", "aria-hidden": "true"}, make("span", {}, keys[0]), make("span", {}, keys.at(-1))));
}

function attentionCells(text, rows, keys) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), cells = [];
  bytes.forEach((byte, at) => {
    if (byte > 5) cells.push({row: Math.floor(at / keys), key: at % keys, value: byte / 255});
  });
  return cells;
}

function lineCells(lines, site, shape, valueOf) {
  return shape.rows.flatMap((_, row) => {
    const at = shape.places?.[row] ?? {column: row, row: 0}, found = new Map();
    const above = Math.max(0, ...lines.map((line) => line.segment));
    const anchors = site !== "self" ? sourceAnchors(shape.keys.length, shape.closes) : shape.places ? at.anchors(above) : [0, row];
    for (const line of lines) {
      const key = keyOf(line, site, anchors, at.column, at.row);
      if (key !== null) found.set(key, Math.max(found.get(key) ?? 0, valueOf(line)));
    }
    return [...found].map(([key, value]) => ({row, key, value}));
  });
}

// One head: its sentence and its images; ``drawBias`` draws the last one for a length.
function headCard(heads, site, layer, number) {
  const {rows, keys, layers} = heads.sites[site], head = layers[layer][number], causal = site === "self";
  const said = head.lines.map((line) => line.words).join("; and ");
  const name = `layer ${layer}, head ${number}`;
  const images = [make("figure", {},
    grid(rows, keys, attentionCells(head.attention, rows.length, keys.length), "seen", `Averaged attention of ${name}`, causal),
    make("figcaption", {}, "attention"))];
  let drawBias = () => {};
  if (head.lines.length) {
    const near = shapeAt(heads, heads.digits, site);
    const fit = lineCells(head.lines, site, {...near, rows, keys, places: rows.includes("|") ? placesOf(["$", ...rows.slice(0, -1)]) : null}, (line) => line.weight ?? 1);
    const bias = make("figure", {});
    drawBias = (length) => {
      const shape = shapeAt(heads, length, site);
      const cells = lineCells(head.lines, site, shape, (line) => Math.exp(line.value));
      bias.replaceChildren(grid(shape.rows, shape.keys, cells, "bias", `Bias of ${name} at ${length}`, causal),
        make("figcaption", {}, "bias at ", make("b", {}, String(length))));
    };
    const most = Math.max(...fit.map((cell) => cell.value));
    images.push(make("figure", {}, grid(rows, keys, fit, "fit", `Lines kept from ${name}`, causal, most), make("figcaption", {}, "kept line")), bias);
  }
  const label = head.lines.map((line) => line.label + (line.note ? `, ${line.note}` : "")).join("; ");
  const card = make("article", {class: "head"},
    make("h4", {}, `Head ${number}`, label ? make("code", {}, label) : null),
    make("p", {}, head.lines.length ? capital(said) + "." : head.elsewhere ? `Looks at the ${site === "self" ? "source" : "output"} alone.` : heads.calibrated ? "Attends as it likes: no line." : null),
    make("div", {class: "images", style: `--shape: ${keys.length} / ${rows.length}`}, images));
  return {card, drawBias, sink: head.sink};
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

// The whole section of a run.
function headsSection(run) {
  const heads = run.heads, sites = Object.keys(SITES).filter((site) => heads.sites[site]);
  const cards = [], panel = make("div", {role: "tabpanel"});
  const number = make("b", {}), beginning = Math.min(Math.max(20, 2 * heads.digits), heads.shapes.length);
  const redraw = (length) => { number.textContent = length; cards.forEach((card) => card.drawBias(length)); };
  const slider = make("input", {type: "range", min: 1, max: heads.shapes.length, value: beginning, "aria-label": `Length of the bias in ${run.unit}`,
    oninput: (event) => redraw(Number(event.target.value))});
  const show = (chosen) => {
    cards.length = 0;
    const site = sites[chosen];
    panel.setAttribute("aria-label", SITES[site]);
    panel.replaceChildren(...heads.sites[site].layers.map((layer, k) => {
      const made = layer.map((_, h) => headCard(heads, site, k, h));
      cards.push(...made);
      const sinks = made.filter((card) => card.sink).map((card) => card.card);
      const others = made.filter((card) => !card.sink).map((card) => card.card);
      return make("section", {class: "layer"}, make("h3", {}, `Layer ${k}`),
        others.length ? make("div", {class: heads.calibrated ? "cards" : "cards plain"}, others) : make("p", {class: "note"}, "No head of this layer looks for anything."),
        sinks.length ? make("details", {}, make("summary", {}, `${sinks.length} head${sinks.length > 1 ? "s rest" : " rests"} where nothing new stands`), make("div", {class: "cards"}, sinks)) : null);
    }));
    redraw(Number(slider.value));
  };
  const choice = tabs("Where attention happens", sites.map((site) => SITES[site]), show);
  choice.choose(0);
  const control = heads.calibrated ? make("label", {class: "slider"}, make("span", {}, "Bias at ", number, ` ${run.unit}`), slider) : null;
  return [choice.list, control, panel];
}
