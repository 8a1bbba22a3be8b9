// Starts the model of each run once its part of the page is open.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const players = page.runs.map((run, i) => {
  const player = new Player(run, i), part = document.getElementById(`run-${i}`);
  part.querySelector("[data-fill=play]").replaceChildren(...player.elements());
  part.addEventListener("toggle", () => { if (part.open && !player.problem) player.begin(); });
  if (part.open) player.begin();
  return player;
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
