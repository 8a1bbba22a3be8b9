// The Transformer of abc_calib/nn/transformer, one row at a time, in double precision.
"use strict";

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return Float64Array.from(new Float32Array(bytes.buffer));
}

class Transformer {
  constructor(data) {
    Object.assign(this, data);
    this.width = data.d_model;
    // how many rows of an output the lines of self-attention reach up
    this.above = Math.max(0, ...(data.lines?.self ?? []).flat(2).map((line) => line.segment));
    this.weights = new Map(
      Object.entries(data.tensors).map(([name, tensor]) => [name, floats(tensor.data)]));
  }

  linear(name, x) {
    const weight = this.weights.get(name + ".weight"), bias = this.weights.get(name + ".bias");
    const out = Float64Array.from(bias), n = x.length;
    for (let i = 0; i < out.length; i++) {
      let sum = 0;
      for (let j = 0, at = i * n; j < n; j++) sum += weight[at + j] * x[j];
      out[i] += sum;
    }
    return out;
  }

  norm(name, x) {
    const weight = this.weights.get(name + ".weight"), bias = this.weights.get(name + ".bias");
    let mean = 0, variance = 0;
    for (const value of x) mean += value / x.length;
    for (const value of x) variance += (value - mean) ** 2 / x.length;
    const scale = 1 / Math.sqrt(variance + 1e-5);
    return x.map((value, i) => (value - mean) * scale * weight[i] + bias[i]);
  }

  embed(id) {
    return this.weights.get("embed.weight").slice(id * this.width, (id + 1) * this.width);
  }

  feedforward(name, x) {
    const hidden = this.linear(name + ".0", x);
    return this.linear(name + ".3", hidden.map((value) => Math.max(value, 0)));
  }

  // What a layer of attention keeps of a token: its value and, where keys are compared, its key.
  kept(name, x) {
    const compares = this.weights.has(name + ".key.weight");
    return {value: this.linear(name + ".value", x), key: compares ? this.linear(name + ".key", x) : null};
  }

  // One row: what it gives, and for each head the keys that it read with their weights.
  attend(name, site, layer, x, store, anchors, at) {
    const size = this.width / this.heads, mixed = new Float64Array(this.width), reads = [];
    const query = this.weights.has(name + ".query.weight") ? this.linear(name + ".query", x) : null;
    for (let head = 0; head < this.heads; head++) {
      const open = this.open(site, layer, head, anchors, at, store.length);
      const weights = weigh(open, query, store, head * size, size);
      for (const [key, weight] of weights)
        for (let e = head * size; e < (head + 1) * size; e++) mixed[e] += weight * store[key].value[e];
      reads.push(weights);
    }
    return [this.linear(name + ".output", mixed), reads];
  }

  // The keys that a head may look at in a row, each with its bias.
  open(site, layer, head, anchors, at, keys) {
    const lines = this.lines?.[site]?.[layer]?.[head] ?? [];
    const named = keysOf(lines, site, anchors, at.column, at.row), off = this.lines?.off_line_bias ?? null;
    if (lines.length && off === null) return [...named];
    const elsewhere = lines.length ? off : 0;
    return Array.from({length: keys}, (_, key) => [key, Math.max(named.get(key) ?? elsewhere, elsewhere)]);
  }

  encode(source) {
    const delimiters = source.flatMap((id, at) => (this.delimiters.includes(id) ? [at] : []));
    let states = source.map((id) => this.embed(id));
    for (let layer = 0; layer < this.encoder_layers; layer++) {
      const name = `encoder.layers.${layer}`, anchors = sourceAnchors(source.length, delimiters);
      const store = states.map((x) => this.kept(name + ".attention", this.norm(name + ".norms.0", x)));
      states = states.map((x, row) => {
        const y = this.norm(name + ".norms.0", x);
        const [seen] = this.attend(name + ".attention", "encoder", layer, y, store, anchors, {column: row, row: 0});
        const z = add(x, seen);
        return add(z, this.feedforward(name + ".feedforward", this.norm(name + ".norms.1", z)));
      });
    }
    if (this.encoder_layers) states = states.map((x) => this.norm("encoder.norm", x));
    const layers = Array.from({length: this.decoder_layers}, (_, layer) => ({
      rows: [], source: states.map((x) => this.kept(`layers.${layer}.cross_attention`, x)),
    }));
    return {layers, anchors: sourceAnchors(source.length, delimiters), grid: new Grid(this.row)};
  }

  // The next row, which reads ``token``: its logits, and what each head of each layer read.
  step(state, token) {
    let x = this.embed(token);
    const reads = [], at = state.grid.read(token), own_anchors = at.anchors(this.above);
    state.layers.forEach((store, layer) => {
      const name = `layers.${layer}`;
      let y = this.norm(name + ".norms.0", x), own, crossed;
      store.rows.push(this.kept(name + ".self_attention", y));
      [y, own] = this.attend(name + ".self_attention", "self", layer, y, store.rows, own_anchors, at);
      x = add(x, y);
      y = this.norm(name + ".norms.1", x);
      [y, crossed] = this.attend(name + ".cross_attention", "cross", layer, y, store.source, state.anchors, at);
      x = add(x, y);
      x = add(x, this.feedforward(name + ".feedforward", this.norm(name + ".norms.2", x)));
      reads.push({self: own, cross: crossed});
    });
    return {logits: this.linear("head", this.norm("norm", x)), reads};
  }
}

function add(x, y) {
  return x.map((value, i) => value + y[i]);
}

// Softmax of a head's scores over its open keys; without keys it reads nothing.
function weigh(open, query, store, from, size) {
  if (open.length < 2) return open.map(([key]) => [key, 1]);
  const scores = open.map(([key, bias]) => {
    let sum = 0;
    for (let e = from; e < from + size; e++) sum += query[e] * store[key].key[e];
    return sum / Math.sqrt(size) + bias;
  });
  const top = Math.max(...scores), powers = scores.map((score) => Math.exp(score - top));
  const total = powers.reduce((a, b) => a + b, 0);
  return open.map(([key], i) => [key, powers[i] / total]);
}

function largest(values) {
  return values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
}
