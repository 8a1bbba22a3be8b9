// Problems as a person types them: token ids, the place of every token, and the right output.

const MOST = 2000;  // digits or words that are typed at most

// {ids, places, operands}, or {error}. places: of each token {operand, column} or {delimiter}.
function parsed(run, text) {
  if (text.length > 4 * MOST) return {error: `that is too long: type at most ${MOST} digits`};
  return run.spelling.words ? words(run, run.spelling, text) : numbers(run, run.spelling, text);
}

function words(run, spelling, text) {
  const typed = text.trim().split(/\s+/).filter(Boolean);
  const strange = typed.find((word) => !spelling.words.includes(word));
  if (!typed.length) return refused(run, text, "it is empty");
  if (strange !== undefined) return refused(run, text, `'${shortened(strange)}' is not one of its tokens`);
  const closes = Array(spelling.closes).fill("&"), tokens = ["$", ...typed, ...closes];
  const places = tokens.map((_, at) => at && at <= typed.length ? {operand: 0, column: at - 1} : {delimiter: at ? 1 : 0});
  return {ids: tokens.map((word) => run.symbols.indexOf(word)), tokens, places, operands: [typed], words: true};
}

// What to say of a text that is not a problem of the task: what is wrong with it, and what is right.
function refused(run, text, why) {
  return {error: `'${shortened(text)}' is not a source of ${run.task}: ${why}; write ${run.spelling.usage}`};
}

// Operands of any width, as many as are typed, where the output has rows; else filled up with zeros.
function numbers(run, spelling, text) {
  const typed = text.trim().toLowerCase(), rows = !spelling.widths;
  const parts = (spelling.operator ? typed.split(spelling.operator) : [typed]).map((part) => part.trim());
  const count = (rows ? spelling.operands : spelling.widths.length) ?? parts.length;
  const strange = [...parts.join("")].find((digit) => !spelling.digits.includes(digit));
  if (strange) return refused(run, text, `'${strange}' is not a digit of base ${spelling.digits.length}`);
  if (parts.includes("")) return refused(run, text, typed ? `a number next to '${spelling.operator}' is missing` : "it is empty");
  if (parts.length !== count) return refused(run, text, `it has ${parts.length} number${parts.length > 1 ? "s" : ""}, not ${count}`);
  let operands = parts.map((part) => part.replace(/^0+(?=.)/, ""));
  if (!rows) {
    const widest = spelling.fixed ?? Math.max(...operands.filter((_, i) => spelling.widths[i] === null).map((number) => number.length));
    const widths = spelling.widths.map((width) => width ?? widest);
    if (operands.some((number, i) => number.length > widths[i]))
      return refused(run, text, "a number has too many digits");
    operands = operands.map((number, i) => number.padStart(widths[i], "0"));
  }
  const [tokens, places] = oneByOne(operands, spelling.operator);
  return {ids: tokens.map((token) => run.symbols.indexOf(token)), tokens, places, operands, rows};
}

function oneByOne(operands, operator) {
  const tokens = ["$"], places = [{delimiter: 0}];
  operands.forEach((operand, which) => {
    [...operand].forEach((digit, at) => {
      tokens.push(digit);
      places.push({operand: which, column: operand.length - 1 - at});
    });
    tokens.push(which < operands.length - 1 ? operator : "&");
    places.push({delimiter: which + 1});
  });
  return [tokens, places];
}

// The right output, token by token with its end, by the task's rule; null without one, and undefined
// where no source is like this, as of a difference below 0.
function rightOutput(run, problem) {
  const rule = run.rule;
  if (!rule || problem.words) return null;
  const values = problem.operands.map((operand) => [...operand].map((digit) => run.symbols.indexOf(digit)).reverse());
  const count = rule.listed ? values.length : rule.later ? values[rule.of_row].length + (rule.past ? 1 : 0) : 1;
  const rows = [];
  for (let number = 0; number < count; number++) {
    const by = (number && rule.later) || rule.first, row = [];
    const tapes = by.tapes.map((which) => (which < 0 ? rows.at(-1).slice(rule.shift) : values[rule.listed ? number : which]));
    let state = by.start[by.symbols.length ? by.symbols.indexOf(values[rule.of_row][number] ?? by.base) : 0];
    for (let column = 0; ; column++) {
      const at = (table) => tapes.reduce((part, tape) => part[tape[column] ?? by.base], table[state]);
      if (at(by.next) < 0) return undefined;
      if (at(by.written) >= by.base) break;
      row.push(at(by.written));
      state = at(by.next);
    }
    rows.push(row);
  }
  return [...rows.flatMap((row, number) => [...(number ? ["|"] : []), ...row.map((value) => run.symbols[value])]), "&"];
}

// A problem of some length: random digits, the first of a number not 0.
function invented(spelling, length) {
  const draw = (digits) => digits[Math.floor(Math.random() * digits.length)];
  const number = (width) => draw(spelling.digits.slice(1)) + Array.from({length: width - 1}, () => draw(spelling.digits)).join("");
  const numbers = (spelling.widths ?? Array(spelling.operands ?? 3).fill(null)).map((width) => number(width ?? length));
  if (spelling.operator === "-") numbers.sort((a, b) => (a < b ? 1 : -1));
  return numbers.join(spelling.operator ?? "");
}

// A problem whose carry runs through all digits: 999999+1, 100000-1.
function instructive(spelling, width) {
  const last = spelling.digits.at(-1), first = spelling.operator === "-" ? "1" + "0".repeat(width - 1) : last.repeat(width);
  const fixed = spelling.widths ?? Array(spelling.operands ?? 2).fill(null);
  const others = fixed.slice(1).map((digits) => digits === null ? "1" : last.repeat(digits));
  return [first, ...others].join(spelling.operator ?? "");
}

function shortened(text) {
  return text.length > 40 ? text.slice(0, 37) + "…" : text;
}

// The name of a place, as everywhere in this project: a0 is the last digit of the first operand.
function nameOf(place, tokens, key, isWords) {
  if (place.delimiter !== undefined) return tokens[key];
  if (isWords) return `word ${place.column}`;
  return letter(place.operand) + place.column;
}
