// The model itself: a typed problem is written digit by digit, and what each row reads lights up.
"use strict";

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

const NAMED = 40;  // rows that are written one after another for the eye

class Player {
  constructor(run, index) {
    this.run = run;
    this.model = run.model ? new Transformer(run.model) : null;
    this.verdict = make("p", {class: "verdict", role: "status"});
    this.board = make("div", {class: "board", tabindex: 0, role: "group", "aria-label": "The problem and what was written"});
    this.reads = make("div", {class: "reads", "aria-live": "polite"});
    this.input = make("input", {type: "text", id: `problem-${index}`, autocomplete: "off", autocapitalize: "off", spellcheck: "false", inputmode: "text"});
    this.board.addEventListener("keydown", (event) => {
      const step = {ArrowLeft: 1, ArrowRight: -1}[event.key];
      if (step) { event.preventDefault(); this.look(this.row + (this.problem.words ? -step : step)); }
    });
    this.turn = 0;
  }

  elements() {
    return [...(this.model ? [this.form()] : [this.refusal()]), this.chips(), this.verdict, this.board, this.reads];
  }

  form() {
    return make("form", {class: "ask", onsubmit: (event) => { event.preventDefault(); this.ask(this.input.value); }},
      make("label", {for: this.input.id}, `Type any problem: ${this.run.spelling.usage}`),
      make("div", {class: "line"}, this.input, make("button", {type: "submit", class: "primary"}, "Run")));
  }

  refusal() {
    return make("p", {class: "note"}, `This model is not computed in the page: ${this.run.why}. These are problems that it was given when the page was made.`);
  }

  chips() {
    const chip = (text, action) => make("button", {type: "button", class: "chip", onclick: action}, text);
    const spelling = this.run.spelling, buttons = [];
    if (this.model && spelling.digits) {
      const far = spelling.notation === "rows" ? [10, 20, 40] : [20, 100, 500];
      for (const length of new Set([this.run.length, ...far]))
        buttons.push(chip(`random, ${length} ${this.run.unit}`, () => this.ask(invented(spelling, length, false))));
      const nines = spelling.notation === "rows" ? 15 : 50;
      buttons.push(chip(`${spelling.digits.at(-1).repeat(3)}…, ${nines} ${this.run.unit}`, () => this.ask(invented(spelling, nines, true))));
    } else {
      for (const example of this.run.examples) {
        const right = example.written.join(" ") === example.right.join(" ");
        buttons.push(chip(`${example.length} ${this.run.unit} ${right ? "✓" : "✗"}`, () => this.model ? this.ask(example.problem) : this.replay(example)));
      }
    }
    return make("div", {class: "chips", role: "group", "aria-label": "Problems to try"}, buttons);
  }

  // Something to look at before anything is typed.
  begin() {
    const examples = this.run.examples, spoiled = examples.find((one) => one.written.join(" ") !== one.right.join(" "));
    const first = spoiled ?? examples.find((one) => one.length > this.run.length) ?? examples[0];
    if (!first) this.verdict.textContent = "Type a problem.";
    else if (this.model) this.ask(first.problem);
    else this.replay(first);
  }

  async ask(text) {
    const turn = ++this.turn;
    this.asked = this.input.value = text.trim();
    const problem = parsed(this.run, text), right = problem.error ? null : rightOutput(this.run, problem);
    if (problem.error || right === undefined) {
      this.say("wrong", problem.error ?? `the answer of ${shown(text.trim())} would be below 0: write the larger number first`);
      this.board.replaceChildren();
      this.reads.replaceChildren();
      return;
    }
    this.example = null;
    const known = this.run.examples.find((one) => one.problem === text.trim());
    this.set(problem, right ?? known?.right ?? null);
    const state = this.model.encode(problem.ids), most = (this.right?.length ?? 2 * problem.ids.length) + 2;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    let token = this.run.model.sos, painted = performance.now(), pause = 60;
    for (let row = 0; row < most; row++) {
      const {logits, reads} = this.model.step(state, token);
      token = largest(logits);
      this.written.push(this.run.symbols[token]);
      this.seen.push(this.named(reads));
      const slow = most <= NAMED && !still;
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
      if (token === this.run.model.eos) break;
    }
    this.finish();
  }

  // An example whose output, answer and attention were computed when the page was made.
  replay(example) {
    this.asked = example.problem;
    this.turn++;
    this.example = example;
    const problem = {tokens: example.source, words: this.run.spelling?.notation === "words" || !this.run.spelling};
    const again = this.run.spelling ? parsed(this.run, example.problem) : {};
    this.set(again.error || !again.places ? {...problem, words: true, places: example.source.map((_, column) => ({operand: 0, column}))} : again, example.right);
    this.written = [...example.written];
    this.seen = example.seen.map((keys) => keys.map(([key, weight]) => ({site: "cross", key, weight})));
    this.finish();
  }

  set(problem, right) {
    Object.assign(this, {problem, right, written: [], seen: [], row: 0, done: false});
  }

  // What the heads of all layers read in a row, without those that rest.
  named(reads) {
    return reads.flatMap((sites, layer) => Object.entries(sites).flatMap(([site, heads]) => heads.flatMap((keys, head) => {
      if (this.run.rests[site]?.[layer]?.[head]) return [];
      return keys.filter(([, weight]) => weight >= 0.2).map(([key, weight]) => ({site, layer, head, key, weight}));
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
    const wrong = this.wrong(), answer = this.example?.answer ?? this.answer(this.written);
    if (!this.right) this.say("open", `${this.stated(answer)} (not checked: the page has no rule for this task)`);
    else if (wrong < 0) this.say("right", `${this.stated(answer)} ✓`);
    else this.say("wrong", `${this.stated(answer)} ✗ The right answer is ${this.example?.solution ?? this.answer(this.right)}. The first wrong token is y${wrong}, ${this.written[wrong] ?? "nothing"} instead of ${this.right[wrong] ?? "nothing"}.`);
    this.draw();
    this.look(Math.min(wrong < 0 ? 1 : wrong, this.written.length - 1));
  }

  // What tokens of an output say, as a person writes it: of rows what they come to.
  answer(tokens) {
    const said = tokens.filter((token) => token !== "&"), digits = this.run.spelling?.digits;
    if (this.run.spelling?.last) return said.at(-1) ?? "";
    if (this.problem.words || !digits || !said.every((token) => token === "|" || digits.includes(token))) return said.join(" ");
    const lines = said.join("\n").split("|").map((line) => line.split("\n").filter(Boolean)), shift = this.run.rule?.shift ?? 0;
    if (this.run.rule?.past && !lines.at(-1).length) lines.pop();  // an empty row ends the output
    const number = lines.flatMap((line, row) => (row < lines.length - 1 ? line.slice(0, shift) : line)).reverse().join("");
    return this.run.spelling.operator ? number.replace(/^0+(?=.)/, "") : number;
  }

  // The problem and its answer in one line.
  stated(answer) {
    const {operands, words} = this.problem, {operator} = this.run.spelling ?? {};
    if (words || !operands) return `${this.asked} → ${answer || "nothing"}`;
    const numbers = operands.map((operand) => operand.replace(/^0+(?=.)/, ""));
    return `${numbers.join(` ${{"*": "×", "-": "−"}[operator] ?? operator} `)} ${operator ? "=" : "→"} ${answer || "nothing"}`;
  }

  say(kind, text) {
    this.verdict.className = `verdict ${kind}`;
    this.verdict.textContent = text;
  }

  draw() {
    this.cells = new Map();
    this.board.replaceChildren(...(this.problem.words ? this.wordRows() : this.digitRows()));
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

  // Every operand a line, its last digit at the right; below it each row of the output, moved on as
  // the rule has it, and under a wrong one what is right.
  digitRows() {
    const {tokens, places, operands} = this.problem, shift = this.run.rule?.shift ?? 0, wrong = this.wrong();
    const lines = [[]];
    this.written.forEach((token, position) => {
      lines.at(-1).push(position);
      if (token === "|") lines.push([]);
    });
    const longest = wrong < 0 ? 0 : Math.max(...this.right.join("\n").split("|").map((line) => line.split("\n").length));
    const columns = Math.max(...operands.map((operand) => operand.length), ...lines.map((line, row) => Math.max(line.length, longest) + row * shift));
    const key = new Map(places.map((place, at) => [place.delimiter === undefined ? `${place.operand},${place.column}` : `d${place.delimiter}`, at]));
    const source = (id, kind) => (key.has(id) ? this.cell(`s${key.get(id)}`, tokens[key.get(id)], kind) : null);
    const row = (label, cells, first = null, last = null) => make("div", {class: "row"}, make("span", {class: "label"}, label), first ?? this.empty(),
      Array.from({length: columns}, (_, i) => cells(columns - 1 - i) ?? this.empty()), last ?? this.empty());
    const above = operands.map((_, which) => row(String.fromCharCode(97 + (which % 26)), (column) => source(`${which},${column}`, "source"),
      source(`d${which}`, "delimiter"), which === operands.length - 1 ? source(`d${operands.length}`, "delimiter") : null));
    const below = lines.flatMap((line, number) => {
      const shown = row(this.problem.rows ? `row ${number}` : "y", (column) => {
        const position = line[column - number * shift];
        return position === undefined ? null : this.output(position);
      });
      if (wrong < 0 || wrong < line[0] || (wrong > line.at(-1) && number < lines.length - 1)) return [shown];
      const end = this.right.findIndex((token, at) => at >= line[0] && token === "|");
      const right = this.right.slice(line[0], end < 0 ? undefined : end + 1);
      return [shown, row("right", (column) => {
        const token = right[column - number * shift];
        return token === undefined ? null : this.cell(null, token, token === this.written[line[column - number * shift]] ? "fine" : "missing");
      })];
    });
    const sheet = make("div", {class: this.problem.rows ? "sheet rows" : "sheet"}, above, below, this.problem.rows ? this.total(lines, shift, row) : []);
    return [sheet];
  }

  empty() {
    return this.cell(null, "", "empty");
  }

  // What rows of which each is moved on by ``shift`` come to: the digits that the next ones no longer change.
  total(lines, shift, row) {
    if (this.written.at(-1) !== "&") return [];
    if (this.run.rule?.past) lines = lines.slice(0, -1);
    const places = lines.flatMap((line, number) => (number < lines.length - 1 ? line.slice(0, shift) : line.slice(0, -1)));
    return row("=", (column) => (column < places.length ? this.cell(null, this.written[places[column]], "total") : null));
  }

  wordRows() {
    const line = (label, cells) => make("div", {class: "words"}, make("span", {class: "label"}, label), cells);
    const rows = [line("source", this.problem.tokens.map((token, key) => this.cell(`s${key}`, token, this.problem.places[key].delimiter === undefined ? "source" : "delimiter"))),
      line("written", this.written.map((_, row) => this.output(row)))];
    if (this.wrong() >= 0) rows.push(line("right", this.right.map((token, i) => this.cell(null, token, token === this.written[i] ? "fine" : "missing"))));
    return rows;
  }

  // Light up what a row read.
  look(row) {
    if (!this.cells || row < 0 || row >= this.written.length) return;
    this.row = row;
    for (const cell of this.cells.values()) cell.classList.remove("lit", "own", "now");
    const lit = new Map();
    for (const {site, key, weight, layer, head} of this.seen[row] ?? []) {
      const id = site === "self" ? (key ? `y${key - 1}` : "start") : `s${key}`;
      this.cells.get(id)?.classList.add(site === "self" ? "own" : "lit");
      const by = layer === undefined ? `weight ${weight}` : `layer ${layer} head ${head}`;
      lit.set(`${site} ${key}`, [...(lit.get(`${site} ${key}`) ?? []), by]);
    }
    const now = this.cells.get(`y${row}`);
    now?.classList.add("now");
    this.scrollTo(now);
    this.tell(row, lit);
  }

  scrollTo(cell) {
    if (!cell) return;
    const box = this.board.getBoundingClientRect(), mine = cell.getBoundingClientRect();
    if (mine.left < box.left + 40 || mine.right > box.right) this.board.scrollLeft += mine.right - box.right + box.width / 3;
  }

  tell(row, lit) {
    const {places, tokens, words} = this.problem;
    const items = [...lit].map(([id, heads]) => {
      const [site, key] = [id.split(" ")[0], Number(id.split(" ")[1])];
      const name = site === "self" ? (key ? `y${key - 1}` : "$, the start") : nameOf(places[key], tokens, key, words);
      const value = site === "self" ? this.written[key - 1] : tokens[key];
      return make("li", {}, make("span", {class: `swatch ${site === "self" ? "own" : "lit"}`}), make("b", {}, name), name === value || value === undefined ? "" : ` = ${value}`,
        make("span", {class: "by"}, heads.length > 3 ? `${heads.length} heads` : heads.join(", ")));
    });
    this.reads.replaceChildren(make("p", {}, "Token ", make("b", {}, `y${row}`), " is ", make("b", {}, this.written[row]), items.length ? ", and reads" : ""), make("ul", {}, items));
  }
}
