// Starts the model of each run once its part of the page is open.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
page.runs.forEach((run, i) => {
  if (!run.model) return;
  const player = new Player(run, i), part = document.getElementById(`run-${i}`);
  part.querySelector("[data-fill=play]").replaceChildren(...player.elements());
  part.addEventListener("toggle", () => { if (part.open && !player.problem) player.begin(); });
  if (part.open) player.begin();
});
