// The Transformer of abc_calib/nn/transformer, one row at a time, in double precision.

class Transformer {
  constructor(data) {
    Object.assign(this, data);
    this.width = data.d_model;
    // how many rows of an output the lines of self-attention reach up
    this.above = Math.max(0, ...(data.lines?.self ?? []).flat(2).map((line) => line.segment));
    this.weights = new Map(Object.entries(data.tensors).map(([name, text]) => [name, floats(text)]));
  }

  linear(name, x) {
    const weight = this.weights.get(name + ".weight"), n = x.length;
    return this.weights.get(name + ".bias").map((bias, i) => {
      let sum = bias;
      for (let j = 0, at = i * n; j < n; j++) sum += weight[at + j] * x[j];
      return sum;
    });
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

  // What follows the attention of a layer, with the norm of that number.
  feedforward(name, x, number) {
    const hidden = this.linear(name + ".feedforward.0", this.norm(`${name}.norms.${number}`, x));
    return add(x, this.linear(name + ".feedforward.3", hidden.map((value) => Math.max(value, 0))));
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

  // The keys that a head of a layer may look at, of ``keys``, with the bias of each. ``sites``: of
  // each [name, anchors, the number of its first key].
  opened(layer, sites, at, keys) {
    const off = this.lines?.off_line_bias ?? null;
    return (head) => {
      const named = new Map(), linesAt = (site) => this.lines?.[site]?.[layer]?.[head] ?? [];
      for (const [site, anchors, first] of sites)
        for (const [key, bias] of keysOf(linesAt(site), site, anchors, at)) named.set(key + first, bias);
      const lined = sites.some(([site]) => linesAt(site).length);
      if (lined && off === null) return [...named];
      const elsewhere = lined ? off : 0;
      return Array.from({length: keys}, (_, key) => [key, Math.max(named.get(key) ?? elsewhere, elsewhere)]);
    };
  }

  encode(source) {
    const delimiters = source.flatMap((id, at) => (this.delimiters.includes(id) ? [at] : []));
    const anchors = [0, source.length - 1, ...delimiters], layers = [];
    let states = source.map((id) => this.embed(id));
    for (let layer = 0; layer < (this.stream ? this.decoder_layers : this.encoder_layers); layer++) {
      const name = (this.stream ? "layers." : "encoder.layers.") + layer;
      const normed = states.map((x) => this.norm(name + ".norms.0", x));
      const store = normed.map((x) => this.kept(name + ".attention", x));
      if (this.stream) layers.push({rows: [], source: store});
      if (this.stream && layer === this.decoder_layers - 1) break;
      states = states.map((x, row) => {
        const opened = this.opened(layer, [["encoder", anchors, 0]], {column: row, row: 0}, this.stream ? row + 1 : states.length);
        return this.feedforward(name, add(x, this.attend(name + ".attention", normed[row], store, opened)[0]), 1);
      });
    }
    if (!this.stream) {
      if (this.encoder_layers) states = states.map((x) => this.norm("encoder.norm", x));
      for (let layer = 0; layer < this.decoder_layers; layer++)
        layers.push({rows: [], source: states.map((x) => this.kept(`layers.${layer}.cross_attention`, x))});
    }
    return {layers, anchors, grid: new Grid(this.row)};
  }

  // The next row, which reads ``token``: its logits, and what each head of each layer read.
  step(state, token) {
    state.grid.read(token);
    const at = state.grid, own = at.anchors(this.above), sources = state.layers[0].source.length, reads = [];
    let x = this.embed(token);
    state.layers.forEach(({rows, source}, layer) => {
      const name = `layers.${layer}`, y = this.norm(name + ".norms.0", x);
      const attention = name + (this.stream ? ".attention" : ".self_attention");
      rows.push(this.kept(attention, y));
      if (this.stream) {  // one attention over source and output
        const sites = [["cross", state.anchors, 0], ["self", own, sources]];
        const [z, heads] = this.attend(attention, y, [...source, ...rows], this.opened(layer, sites, at, sources + rows.length));
        const cross = heads.map((head) => head.filter(([key]) => key < sources));
        reads.push({self: heads.map((head) => head.filter(([key]) => key >= sources).map(([key, w]) => [key - sources, w])), cross});
        x = this.feedforward(name, add(x, z), 1);
        return;
      }
      const [z, self] = this.attend(attention, y, rows, this.opened(layer, [["self", own, 0]], at, rows.length));
      x = add(x, z);
      const opened = this.opened(layer, [["cross", state.anchors, 0]], at, sources);
      const [seen, cross] = this.attend(name + ".cross_attention", this.norm(name + ".norms.1", x), source, opened);
      x = this.feedforward(name, add(x, seen), 2);
      reads.push({self, cross});
    });
    return {logits: this.linear("head", this.norm("norm", x)), reads};
  }
}

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return Float64Array.from(new Float32Array(bytes.buffer));
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
