// The model itself: a typed problem is written digit by digit, and what each row reads lights up.

// An element with attributes and children.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const SLOWLY = 40;  // tokens up to which an answer is written one by one for the eye
const letter = (which) => String.fromCharCode(97 + (which % 26));

class Player {
  constructor(run, index) {
    Object.assign(this, {run, turn: 0, model: new Transformer(run.model)});
    this.verdict = make("p", {class: "verdict", role: "status"});
    this.board = make("div", {class: "board", tabindex: 0, role: "group", "aria-label": "The problem and what was written"});
    this.reads = make("div", {class: "reads", "aria-live": "polite"});
    this.input = make("input", {type: "text", id: `problem-${index}`, autocomplete: "off", autocapitalize: "off", spellcheck: "false", inputmode: "text"});
    this.board.addEventListener("keydown", (event) => {
      const step = {ArrowLeft: 1, ArrowRight: -1}[event.key];
      if (step) { event.preventDefault(); this.look(this.row + (this.problem.words ? -step : step)); }
    });
  }

  elements() {
    const form = make("form", {class: "ask", onsubmit: (event) => { event.preventDefault(); this.ask(this.input.value); }},
      make("label", {for: this.input.id}, `Type any problem: ${this.run.spelling.usage}`),
      make("div", {class: "line"}, this.input, make("button", {type: "submit", class: "primary"}, "Run")));
    return [form, this.chips(), this.verdict, this.board, this.reads];
  }

  chips() {
    const chip = (text, problem) => make("button", {type: "button", class: "chip", onclick: () => this.ask(problem())}, text);
    const {spelling, unit, length, examples} = this.run, far = spelling.widths ? [20, 100, 500] : [10, 20, 40];
    const buttons = !spelling.digits
      ? examples.map((example) => chip(`${example.length} ${unit} ${example.good ? "✓" : "✗"}`, () => example.problem))
      : [chip(instructive(spelling, 12), () => instructive(spelling, 12)), ...[...new Set([length, ...far])].map((width) => chip(`random, ${width} ${unit}`, () => invented(spelling, width)))];
    return make("div", {class: "chips", role: "group", "aria-label": "Problems to try"}, buttons);
  }

  // Something to look at before anything is typed.
  begin() {
    const {examples, length} = this.run;
    const first = examples.find((example) => !example.good) ?? examples.find((example) => example.length > length) ?? examples[0];
    if (first) this.ask(first.problem);
    else this.verdict.textContent = "Type a problem.";
  }

  async ask(text) {
    const turn = ++this.turn;
    this.asked = this.input.value = text.trim();
    const problem = parsed(this.run, text), right = problem.error ? null : rightOutput(this.run, problem);
    if (problem.error || right === undefined) {
      this.say("wrong", problem.error ?? `${shortened(this.asked)} is below 0: ${this.run.task} takes a-b with a not smaller than b`);
      this.board.replaceChildren();
      this.reads.replaceChildren();
      return;
    }
    const known = this.run.examples.find((example) => example.problem === this.asked)?.right;
    Object.assign(this, {problem, right: right ?? known ?? null, written: [], seen: [], row: 0, done: false});
    const state = this.model.encode(problem.ids), most = (this.right?.length ?? 2 * problem.ids.length) + 2;
    const slow = most <= SLOWLY && !matchMedia("(prefers-reduced-motion: reduce)").matches;
    let token = this.model.sos, painted = performance.now(), pause = 60;
    for (let row = 0; row < most; row++) {
      const {logits, reads} = this.model.step(state, token);
      token = largest(logits);
      this.written.push(this.run.symbols[token]);
      this.seen.push(this.strong(reads));
      if (slow || performance.now() - painted > pause) {
        const begun = performance.now();
        this.draw();
        this.look(row);
        pause = Math.max(60, 8 * (performance.now() - begun));  // of a large board the writing is to take most of the time
        this.say("open", `${this.written.length.toLocaleString("en")} tokens so far …`);
        await new Promise((resolve) => setTimeout(resolve, slow ? 45 : 0));
        if (turn !== this.turn) return;
        painted = performance.now();
      }
      if (token === this.model.eos) break;
    }
    this.finish();
  }

  // What the heads of all layers read in a row, without those that rest.
  strong(reads) {
    return reads.flatMap((sites, layer) => Object.entries(sites).flatMap(([site, heads]) => heads.flatMap((keys, head) => {
      if (this.run.rests[site]?.[layer]?.[head]) return [];
      return keys.filter(([, weight]) => weight >= 0.2).map(([key]) => ({site, layer, head, key}));
    })));
  }

  // The first wrong token, or -1; what is not written yet is not wrong.
  wrong() {
    const {written, right} = this;
    if (!right) return -1;
    const first = right.findIndex((token, i) => token !== written[i]);
    const at = first < 0 && written.length > right.length ? right.length : first;
    return this.done || at < written.length ? at : -1;
  }

  finish() {
    this.done = true;
    const wrong = this.wrong(), stated = this.stated(this.answer(this.written)), token = (tokens) => tokens[wrong] ?? "nothing";
    if (!this.right) this.say("open", `${stated} (not checked: the page has no rule for this task)`);
    else if (wrong < 0) this.say("right", `${stated} ✓`);
    else this.say("wrong", `${stated} ✗ The right answer is ${this.answer(this.right)}. The first wrong token is y${wrong}, ${token(this.written)} instead of ${token(this.right)}.`);
    this.draw();
    this.look(Math.min(wrong < 0 ? 1 : wrong, this.written.length - 1));
  }

  // What tokens of an output say, as a person writes it: of rows what they come to.
  answer(tokens) {
    const output = tokens.filter((token) => token !== "&"), {digits, last, operator} = this.run.spelling;
    if (last) return output.at(-1) ?? "";
    if (!digits || !output.every((token) => token === "|" || digits.includes(token))) return output.join(" ");
    const lines = output.join("\n").split("|").map((line) => line.split("\n").filter(Boolean)), shift = this.run.rule?.shift ?? 0;
    if (this.run.rule?.past && !lines.at(-1).length) lines.pop();  // an empty row ends the output
    const number = lines.flatMap((line, row) => (row < lines.length - 1 ? line.slice(0, shift) : line)).reverse().join("");
    return operator ? number.replace(/^0+(?=.)/, "") : number;
  }

  // The problem and its answer in one line.
  stated(answer) {
    const {operands, words} = this.problem, {operator} = this.run.spelling, result = answer || "nothing";
    if (words) return `${this.asked} → ${result}`;
    const numbers = operands.map((operand) => operand.replace(/^0+(?=.)/, ""));
    return `${numbers.join(` ${{"*": "×", "-": "−"}[operator] ?? operator} `)} ${operator ? "=" : "→"} ${result}`;
  }

  say(kind, text) {
    this.verdict.className = `verdict ${kind}`;
    this.verdict.textContent = text;
  }

  draw() {
    this.cells = new Map();
    this.board.replaceChildren(...(this.problem.words ? this.wordRows() : [this.digitRows()]));
  }

  cell(id, text, kind) {
    const cell = make("span", {class: `cell ${kind}`}, text);
    if (id) this.cells.set(id, cell);
    return cell;
  }

  output(row) {
    const bad = this.right && this.written[row] !== this.right[row];
    const cell = this.cell(`y${row}`, this.written[row], bad ? "written bad" : "written");
    cell.addEventListener("click", () => this.look(row));
    return cell;
  }

  expected(token, written) {
    return token === undefined ? null : this.cell(null, token, token === written ? "fine" : "missing");
  }

  // Every operand a line, its last digit at the right; below it each row of the output, moved on as
  // the rule has it, and under a wrong one what is right.
  digitRows() {
    const {tokens, places, operands} = this.problem, shift = this.run.rule?.shift ?? 0, wrong = this.wrong();
    const lines = byRow(this.written), rights = wrong < 0 ? [] : byRow(this.right);
    const width = (line, number) => line.length + number * shift;
    const columns = Math.max(...operands.map((operand) => operand.length), ...lines.map(width), ...rights.map(width));
    const empty = () => this.cell(null, "", "empty");
    const row = (label, cells, first = null, last = null) => make("div", {class: "row"}, make("span", {class: "label"}, label), first ?? empty(),
      Array.from({length: columns}, (_, i) => cells(columns - 1 - i) ?? empty()), last ?? empty());
    const key = new Map(places.map((place, at) => [place.delimiter === undefined ? `${place.operand},${place.column}` : `d${place.delimiter}`, at]));
    const source = (id, kind) => (key.has(id) ? this.cell(`s${key.get(id)}`, tokens[key.get(id)], kind) : null);
    const above = operands.map((_, which) => row(letter(which), (column) => source(`${which},${column}`, "source"),
      source(`d${which}`, "delimiter"), which === operands.length - 1 ? source(`d${operands.length}`, "delimiter") : null));
    const below = lines.flatMap((line, number) => {
      const output = row(this.problem.rows ? `row ${number}` : "y", (column) => {
        const position = line[column - number * shift];
        return position === undefined ? null : this.output(position);
      });
      if (wrong < 0 || wrong < line[0] || (wrong > line.at(-1) && number < lines.length - 1)) return [output];
      const right = (rights[number] ?? []).map((position) => this.right[position]);
      return [output, row("right", (column) => this.expected(right[column - number * shift], this.written[line[column - number * shift]]))];
    });
    return make("div", {class: this.problem.rows ? "sheet rows" : "sheet"}, above, below);
  }

  wordRows() {
    const line = (label, cells) => make("div", {class: "words"}, make("span", {class: "label"}, label), cells);
    const rows = [line("source", this.problem.tokens.map((token, key) => this.cell(`s${key}`, token, this.problem.places[key].delimiter === undefined ? "source" : "delimiter"))),
      line("written", this.written.map((_, row) => this.output(row)))];
    if (this.wrong() >= 0) rows.push(line("right", this.right.map((token, i) => this.expected(token, this.written[i]))));
    return rows;
  }

  // Light up what a row read, and name it.
  look(row) {
    if (!this.cells || row < 0 || row >= this.written.length) return;
    this.row = row;
    for (const cell of this.cells.values()) cell.classList.remove("lit", "own", "now");
    const read = new Map(), {places, tokens, words} = this.problem;
    for (const {site, key, layer, head} of this.seen[row] ?? []) {
      const own = site === "self", id = own ? `y${key - 1}` : `s${key}`, kind = own ? "own" : "lit";
      this.cells.get(id)?.classList.add(kind);
      const name = !own ? nameOf(places[key], tokens, key, words) : key ? id : "$, the start";
      if (!read.has(id)) read.set(id, {name, kind, value: own ? this.written[key - 1] : tokens[key], heads: []});
      read.get(id).heads.push(`layer ${layer} head ${head}`);
    }
    const now = this.cells.get(`y${row}`);
    now?.classList.add("now");
    const board = this.board.getBoundingClientRect(), box = now?.getBoundingClientRect() ?? board;
    if (box.left < board.left || box.right > board.right - 45) this.board.scrollLeft += box.right - board.right + board.width / 3;
    const items = [...read.values()].map(({name, kind, value, heads}) => make("li", {}, make("span", {class: `swatch ${kind}`}), make("b", {}, name),
      name === value || value === undefined ? "" : ` = ${value}`, make("span", {class: "by"}, heads.length > 3 ? `${heads.length} heads` : heads.join(", "))));
    this.reads.replaceChildren(make("p", {}, "Token ", make("b", {}, `y${row}`), " is ", make("b", {}, this.written[row]), items.length ? ", and reads directly (a carry comes with what these have read)" : ""), make("ul", {}, items));
  }
}

// The positions of the tokens of each row of an output.
function byRow(output) {
  const lines = [[]];
  output.forEach((token, position) => {
    lines.at(-1).push(position);
    if (token === "|") lines.push([]);
  });
  return lines;
}

// Each model starts once its part of the page is open.
const page = JSON.parse(document.getElementById("data").textContent);
page.runs.forEach((run, i) => {
  if (!run.model) return;
  const player = new Player(run, i), part = document.getElementById(`run-${i}`);
  part.querySelector("[data-fill=play]").replaceChildren(...player.elements());
  part.addEventListener("toggle", () => { if (part.open && !player.problem) player.begin(); });
  if (part.open) player.begin();
});
