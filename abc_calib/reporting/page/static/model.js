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
    this.weights = new Map(Object.entries(data.tensors).map(([name, text]) => [name, floats(text)]));
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

  // What a layer of attention keeps of a token.
  kept(name, x) {
    return {value: this.linear(name + ".value", x), key: this.linear(name + ".key", x)};
  }

  // One row: what it gives, and for each head the keys that it read with their weights.
  // ``opened`` names the keys that a head may look at, each with its bias.
  attend(name, x, store, opened) {
    const size = this.width / this.heads, mixed = new Float64Array(this.width), reads = [];
    const query = this.linear(name + ".query", x);
    for (let head = 0; head < this.heads; head++) {
      const weights = weigh(opened(head), query, store, head * size, size);
      for (const [key, weight] of weights)
        for (let e = head * size; e < (head + 1) * size; e++) mixed[e] += weight * store[key].value[e];
      reads.push(weights);
    }
    return [this.linear(name + ".output", mixed), reads];
  }

  // The lines of a head at a site, and the keys that they name in a row.
  named(site, layer, head, anchors, at) {
    return keysOf(this.lines?.[site]?.[layer]?.[head] ?? [], site, anchors, at.column, at.row);
  }

  has(site, layer, head) {
    return Boolean(this.lines?.[site]?.[layer]?.[head]?.length);
  }

  // The keys that a head may look at, of so many, where lines name some of them or it has none.
  open(lined, named, keys) {
    const off = this.lines?.off_line_bias ?? null;
    if (lined && off === null) return [...named];
    const elsewhere = lined ? off : 0;
    return Array.from({length: keys}, (_, key) => [key, Math.max(named.get(key) ?? elsewhere, elsewhere)]);
  }

  // The same at one site.
  opened(site, layer, anchors, at, keys) {
    return (head) => this.open(this.has(site, layer, head), this.named(site, layer, head, anchors, at), keys);
  }

  encode(source) {
    const delimiters = source.flatMap((id, at) => (this.delimiters.includes(id) ? [at] : []));
    let states = source.map((id) => this.embed(id));
    const anchors = sourceAnchors(source.length, delimiters), grid = new Grid(this.row);
    if (this.stream) {
      const layers = Array.from({length: this.decoder_layers}, (_, layer) => {
        const name = `layers.${layer}`, [store, next] = this.read(name, layer, states, anchors);
        if (layer < this.decoder_layers - 1) states = next();
        return {rows: [], source: store};
      });
      return {layers, anchors, grid};
    }
    for (let layer = 0; layer < this.encoder_layers; layer++)
      states = this.read(`encoder.layers.${layer}`, layer, states, anchors)[1]();
    if (this.encoder_layers) states = states.map((x) => this.norm("encoder.norm", x));
    const layers = Array.from({length: this.decoder_layers}, (_, layer) => ({
      rows: [], source: states.map((x) => this.kept(`layers.${layer}.cross_attention`, x)),
    }));
    return {layers, anchors, grid};
  }

  // A layer on the tokens of a source: what it keeps of them, and how to get what it makes of them.
  read(name, layer, states, anchors) {
    const store = states.map((x) => this.kept(name + ".attention", this.norm(name + ".norms.0", x)));
    return [store, () => states.map((x, row) => {
      const y = this.norm(name + ".norms.0", x), keys = this.stream ? row + 1 : states.length;
      const opened = this.opened("encoder", layer, anchors, {column: row, row: 0}, keys);
      const z = add(x, this.attend(name + ".attention", y, store, opened)[0]);
      return add(z, this.feedforward(name + ".feedforward", this.norm(name + ".norms.1", z)));
    })];
  }

  // One attention over source and output: what it gives, and what heads read of each.
  stepStream(name, layer, x, store, state, own, at) {
    const y = this.norm(name + ".norms.0", x), sources = store.source.length;
    store.rows.push(this.kept(name + ".attention", y));
    const opened = (head) => {
      const named = new Map(this.named("cross", layer, head, state.anchors, at));
      for (const [key, bias] of this.named("self", layer, head, own, at)) named.set(key + sources, bias);
      const lined = this.has("cross", layer, head) || this.has("self", layer, head);
      return this.open(lined, named, sources + store.rows.length);
    };
    const [seen, reads] = this.attend(name + ".attention", y, [...store.source, ...store.rows], opened);
    const crossed = reads.map((head) => head.filter(([key]) => key < sources));
    const written = reads.map((head) => head.filter(([key]) => key >= sources).map(([key, w]) => [key - sources, w]));
    const z = add(x, seen);
    return [add(z, this.feedforward(name + ".feedforward", this.norm(name + ".norms.1", z))), written, crossed];
  }

  // The next row, which reads ``token``: its logits, and what each head of each layer read.
  step(state, token) {
    let x = this.embed(token);
    const reads = [], at = state.grid.read(token), own_anchors = at.anchors(this.above);
    state.layers.forEach((store, layer) => {
      const name = `layers.${layer}`;
      if (this.stream) {
        const [z, self, cross] = this.stepStream(name, layer, x, store, state, own_anchors, at);
        x = z;
        reads.push({self, cross});
        return;
      }
      let y = this.norm(name + ".norms.0", x), own, crossed;
      store.rows.push(this.kept(name + ".self_attention", y));
      const mine = this.opened("self", layer, own_anchors, at, store.rows.length);
      [y, own] = this.attend(name + ".self_attention", y, store.rows, mine);
      x = add(x, y);
      y = this.norm(name + ".norms.1", x);
      const theirs = this.opened("cross", layer, state.anchors, at, store.source.length);
      [y, crossed] = this.attend(name + ".cross_attention", y, store.source, theirs);
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
