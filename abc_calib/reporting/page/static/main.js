// Fills the parts of the page that move.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);

function accuracyChart(runs, wide = false) {
  const named = wide, series = runs.flatMap((run) => {
    const sets = [...new Set(run.accuracy.rows.map((row) => row.series))];
    return sets.map((set) => ({
      name: named ? `${run.name}, ${set}` : set,
      points: run.accuracy.rows.filter((row) => row.series === set).map((row) => ({
        x: row.length, y: row.accuracy, low: row.low, high: row.high,
        text: `${row.accuracy.toFixed(2)} % [${row.low.toFixed(2)}, ${row.high.toFixed(2)}] of ${row.n.toLocaleString("en")}`,
      })),
    }));
  });
  if (!series.length) return make("p", {class: "note"}, "Not evaluated yet: abc eval.");
  return chart({series, xLabel: runs[0].unit, yLabel: "exact match, %", log: true, yTicks: [0, 25, 50, 75, 100],
    mark: new Set(runs.map((run) => run.length)).size === 1 ? {x: runs[0].length, text: `trained up to ${runs[0].length}`} : null, label: "Exact match against length", wide});
}

function historyChart(run) {
  const points = run.history.filter((entry) => entry.validation_accuracy !== null).map((entry) => ({
    x: entry.step, y: entry.validation_accuracy, text: `${entry.validation_accuracy} % of held-out problems, loss ${entry.loss}`}));
  if (points.length < 2) return make("p", {class: "note"}, "There is no history to draw.");
  return chart({series: [{name: "held out", points}], xLabel: "step", yLabel: "held out, %", yTicks: [0, 25, 50, 75, 100], label: "Held-out accuracy against step"});
}

const players = page.runs.map((run, i) => {
  const panel = document.getElementById(`run-${i}`), fill = (name, ...content) => panel.querySelector(`[data-fill=${name}]`)?.replaceChildren(...content.filter(Boolean));
  const player = new Player(run, i);
  fill("play", ...player.elements());
  fill("accuracy", accuracyChart([run]));
  fill("history", historyChart(run));
  if (run.heads) fill("heads", ...headsSection(run));
  return player;
});

if (page.runs.length > 1) {
  const panels = page.runs.map((_, i) => document.getElementById(`run-${i}`));
  const choice = tabs("Runs", page.runs.map((run) => run.name), (chosen) => {
    panels.forEach((panel, i) => { panel.hidden = i !== chosen; });
    if (!players[chosen].problem) players[chosen].begin();
  });
  const together = document.querySelector("[data-fill=together]");
  for (const unit of new Set(page.runs.map((run) => run.unit)))
    together.append(accuracyChart(page.runs.filter((run) => run.unit === unit), true));
  document.querySelector("[data-fill=runs]").append(choice.list);
  choice.buttons.forEach((button, i) => { button.id = `tab-${i}`; button.setAttribute("aria-controls", `run-${i}`); });
  choice.choose(0);
} else players[0].begin();

// Paper shows every run, with its numbers.
addEventListener("beforeprint", () => {
  players.filter((player) => !player.problem).forEach((player) => player.begin(true));
  for (const details of document.querySelectorAll("details.numbers")) details.open = true;
});

// For those who check the page from outside: the logits of every row of a problem.
window.abcPage = {
  logits(index, text) {
    const run = page.runs[index], player = players[index], problem = parsed(run, text), right = rightOutput(run, problem);
    const state = player.model.encode(problem.ids), rows = [];
    for (const token of ["$", ...right.slice(0, -1)]) rows.push([...player.model.step(state, run.symbols.indexOf(token)).logits]);
    return rows;
  },
  lay: (index, text) => parsed(page.runs[index], text),
  right: (index, text) => rightOutput(page.runs[index], parsed(page.runs[index], text)),
};
