"""The page of a run, in a real browser: what it says, and that it computes what Python does."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest
import torch
from browser import Browser
from conftest import CALIBRATED, VANILLA, Trained, in_stream, run_command

from abc_calib.config import MODEL_OPTIONS
from abc_calib.data import make_data
from abc_calib.errors import UsageError
from abc_calib.geometry import CORNER, Line, LineBias
from abc_calib.nn.build import build_model
from abc_calib.reporting.of_runs import verdict
from abc_calib.reporting.page import collect, names, rendered, text_of, together, write_page
from abc_calib.reporting.page.collect import collected, embedded
from abc_calib.runs import Run
from abc_calib.training.plan import plan_training
from tasks import TASKS, get_task

needs_browser = pytest.mark.skipif(
    browser.find() is None, reason="no Chromium: apt-get install chromium, or set CHROMIUM"
)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser.started(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="session")
def both(trained: Trained) -> list[dict[str, Any]]:
    """The trained runs as the page has them, the calibrated one last, which alone has figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABC_RUNS", str(trained.root))
        calibrated = collected(Run.open(trained.root / CALIBRATED))
        patch.setattr(collect, "heads_of", lambda run: None)
        return [collected(Run.open(trained.root / VANILLA)), calibrated]


@pytest.fixture
def page(both: list[dict[str, Any]], tmp_path: Path) -> Path:
    row = {"set": "random", "length": 9, "accuracy": 50.0, "low": 40.0, "high": 60.0, "n": 100}
    measured = {**both[0], "accuracy": [{**row, "correct": 50, "size": "9", "series": "random"}]}
    path = tmp_path / "page.html"
    path.write_text(rendered([measured, both[1]], "both"), "utf-8")
    return path


def ask_problem(chromium: Browser, run: int, problem: str) -> tuple[str, str]:
    """The verdict on a problem that is typed into the page of a run, and what is written there."""
    chromium.ask(
        f"""(() => {{
            const panel = document.getElementById('run-{run}');
            panel.querySelector('.verdict').textContent = '';
            panel.querySelector('input[type=text]').value = {json.dumps(problem)};
            panel.querySelector('form').requestSubmit();
        }})()"""
    )
    said = f"document.querySelector('#run-{run} .verdict').textContent"
    chromium.until(f"{said} !== '' && !{said}.includes('so far')")
    row = f"[...document.querySelectorAll('#run-{run} .cell.written')]"
    return chromium.ask(said), chromium.ask(f"{row}.map((cell) => cell.textContent).join('')")


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_the_page_shows_itself_without_complaint_or_request(chromium, page, width, dark):
    chromium.open(page, width, dark=dark)
    assert chromium.ask("document.querySelectorAll('.more[open]').length") == 0
    chromium.ask("document.querySelector('#run-1').open = true")
    chromium.until("document.querySelector('#run-1 .verdict').textContent.endsWith('✓')")
    assert chromium.complaints() == []
    assert chromium.requests() == []
    assert chromium.ask("document.documentElement.scrollWidth <= innerWidth")
    assert chromium.ask("document.querySelectorAll('[role=img]:not([aria-label])').length") == 0
    assert chromium.ask("document.querySelectorAll('figure svg').length") > 6
    named = "[...document.querySelectorAll('input')].every((i) => i.ariaLabel || i.labels.length)"
    assert chromium.ask(named)


def test_runs_are_compared_by_task(both):
    other = {**both[1], "task": "parity", "title": "parity", "accuracy": []}
    panels = together([*both, other])
    assert [panel["name"] for panel in panels] == ["Successor", "Parity"]
    assert [[run["index"] for run in panel["runs"]] for panel in panels] == [[0, 1], [2]]
    assert together(both[1:]) == []
    text = rendered([*both, other])
    assert text.count('class="beside"') == 2 and "Successor, Parity" in text


def test_every_word_that_is_explained_stands_on_a_page(both):
    explained = set(re.findall(r'^"(.+?)": "', text_of("macros.html"), re.MULTILINE))
    said = set(re.findall(r'(?:word|fact)\("(.+?)"', text_of("page.html")))
    said |= {
        "certified",
        "tested",
        "refuted",
        "unknown",
        "not valid",
        "before calibration",
        "after calibration",
    }
    assert explained <= said


def test_a_page_begins_with_what_was_measured_before_and_after():
    def row(length: int, correct: int) -> dict[str, Any]:
        at = {"set": "random", "length": length, "size": f"{length:,}", "n": 1000}
        return {**at, "accuracy": correct / 10, "correct": correct}

    before = verdict([row(3, 1000), row(6, 999), row(10, 2), row(1000, 0)], 6, "digits")
    assert before == "fails beyond 6 digits: right on 2 of 1,000 problems of 10 digits"
    after = verdict([row(6, 1000), row(1000, 1000)], 6, "digits")
    assert after == "right on 1,000 of 1,000 problems of 1,000 digits"
    assert verdict([row(6, 500)], 6, "digits") == "right on 500 of 1,000 problems of 6 digits"
    assert verdict([], 6, "digits") == ""


def test_the_contrast_stands_first_on_a_page(both):
    said = {"before calibration": "fails", "after calibration": "is right"}
    first = {**both[0], "verdicts": {"before calibration": "fails"}}
    for runs in ([{**both[1], "verdicts": said}], [{**both[1], "verdicts": said}, first]):
        body = rendered(runs).partition("<main>")[2]
        places = [body.index(text) for text in ("</b> fails.", "</b> is right.", "<svg", "intro")]
        assert places[0] < places[1] < min(places[2:])
        assert "Certified" not in body
    certified = {**both[1], "verdicts": said, "certificate": {"outcome": "certified"}}
    for runs in ([certified], [certified, first]):
        body = rendered(runs).partition("<main>")[2]
        assert body.index("Certified:</b> right at every length.") < body.index("</b> fails.")
    others = [{**both[1], "verdicts": said}] * 2
    assert "</b> is right" not in rendered(others).partition("</section>")[0]


@needs_browser
def test_on_a_phone_charts_fit_and_heatmaps_scroll_with_their_legend(chromium, both, tmp_path):
    path = tmp_path / "phone.html"
    path.write_text(rendered([both[1]]), "utf-8")
    chromium.open(path, 390)
    chromium.ask("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert chromium.ask("document.documentElement.scrollWidth <= innerWidth")
    width = "(svg) => svg.getBoundingClientRect().width"
    widths = f"[...document.querySelectorAll('%s svg')].map({width})"
    charts, heatmaps = chromium.ask(widths % ".chart"), ".plate:not(.chart)"
    assert charts and max(charts) < 390
    assert "How it learned" in chromium.ask("document.body.innerText")
    assert min(chromium.ask(widths % heatmaps)) > 390
    holds = "plate.scrollWidth > plate.clientWidth && plate.textContent.includes('weight')"
    plates = f"[...document.querySelectorAll('{heatmaps}')]"
    assert chromium.ask(f"{plates}.every((plate) => {holds})")


REFUSED = ("", "12a", "<b>", "1+1", "-1", "٣", "1,000", "１２")
"""What cannot be typed."""


@needs_browser
def test_typed_problems_are_written_and_judged(chromium, page):
    chromium.open(page, 390)
    chromium.ask("document.querySelector('#run-1').open = true")
    for problem in ("199", "0", " 0099 ", "9" * 500, "1234567890" * 20):
        said, answer = ask_problem(chromium, 1, problem)
        number = problem.strip().lstrip("0") or "0"
        assert said == f"{number} → {int(problem) + 1} ✓"
        assert int(answer.removeprefix("&")) == int(problem) + 1
    for refused in REFUSED:
        said, answer = ask_problem(chromium, 1, refused)
        with pytest.raises(UsageError) as terminal:
            get_task("successor").parse(refused)
        assert said == str(terminal.value)
        assert answer == ""
    assert "too long" in ask_problem(chromium, 1, "9" * 9000)[0]
    assert chromium.complaints() == []


@needs_browser
def test_runs_are_opened_and_tokens_chosen_by_keyboard(chromium, page):
    chromium.open(page)
    opened = "[...document.querySelectorAll('details.run')].map((run) => run.open)"
    assert chromium.ask(opened) == [True, False]
    assert chromium.ask("document.querySelector('#run-1 .verdict').textContent") == ""
    chromium.ask("document.querySelector('#run-1 > summary').focus()")
    chromium.press("Enter")
    assert chromium.ask(opened) == [True, True]
    chromium.until("document.querySelector('#run-1 .verdict').textContent.endsWith('✓')")
    chromium.ask("document.querySelector('#run-1 .board').focus()")
    at = "document.querySelector('#run-1 .reads b').textContent"
    before = chromium.ask(at)
    chromium.press("ArrowLeft")
    assert int(chromium.ask(at)[1:]) == int(before[1:]) + 1
    chromium.ask("document.querySelectorAll('#run-1 .cell.written')[0].click()")
    assert chromium.ask(at) != before
    assert chromium.complaints() == []


def variant(run: dict[str, Any], data: Any, **more: Any) -> dict[str, Any]:
    """A run's data with another task, and no heads."""
    rule = data.task.rule()
    return {
        **run,
        **{"task": data.task.name, "examples": [], "heads": None, "spelling": data.spelling()},
        **{"symbols": list(data.vocabulary.symbols)},
        **{"rule": rule.padded.as_dict() if rule else None, **more},
    }


@needs_browser
def test_rows_of_an_output_come_to_the_answer(chromium, both, tmp_path):
    """Also while some of it is wrong: then the right row stands below."""
    data = make_data(get_task("long_multiplication"), plan_training("long_multiplication").train)
    written = ["8", "4", "0", "|", "0", "4", "0", "|", "&"]
    wrong = [*written[:5], "5", *written[6:]]
    path = tmp_path / "rows.html"
    path.write_text(rendered([variant(both[1], data)]), "utf-8")
    chromium.open(path)

    def show(output: list[str]) -> None:
        chromium.ask(
            f"""(() => {{
                const run = page.runs[0], problem = parsed(run, '12*34');
                const player = new Player(run, 0);
                document.querySelector('[data-fill=play]').replaceChildren(...player.elements());
                const right = rightOutput(run, problem), written = {json.dumps(output)};
                Object.assign(player, {{problem, right, written, seen: []}});
                player.finish();
            }})()"""
        )

    rows = "[...document.querySelectorAll('.sheet .row')].map((row) => row.innerText.split(/\\s+/)"
    rows += ".join(''))"
    verdict = "document.querySelector('.verdict').textContent"
    show(written)
    assert chromium.ask(rows) == ["a$12", "b*34&", "row0|048", "row1|040", "row2&"]
    assert chromium.ask(verdict) == "12 × 34 = 408 ✓"
    show(wrong)
    assert chromium.ask(rows)[3:] == ["row1|050", "right|040", "row2&"]
    said = chromium.ask(verdict)
    assert said.startswith("12 × 34 = 508 ✗ The right answer is 408.")
    assert "y5, 5 instead of 4" in said
    assert chromium.complaints() == []


def test_runs_of_the_same_name_are_told_apart():
    paths = [Path("runs/a/one"), Path("runs/b/one"), Path("runs/b/two")]
    assert names(paths) == [str(path) for path in paths]
    assert names(paths[1:]) == ["one", "two"]
    assert names([paths[0], paths[0]]) == ["one", "one"]


CASES: tuple[tuple[str, dict[str, Any], str, dict[str, Any] | None], ...] = (
    ("successor", {}, "free", {"single": True}),
    ("addition", {"encoder_layers": 1}, "free", {"empty": 0.4}),
    ("addition", {"encoder_layers": 2}, "fixed:9", {}),
    ("multiplication", {"heads": 1}, "free", {"empty": 0.2}),
    ("parity", {"encoder_layers": 1}, "free", {"empty": 1.0}),
    ("addition", {}, "free", None),
    ("addition", {"model": "decoder"}, "free", None),
    ("addition", {"model": "decoder"}, "free", {"empty": 0.4}),
    ("long_multiplication", {}, "free", {"single": True}),
    ("long_multiplication", {"encoder_layers": 1}, "free", {"empty": 0.2}),
)
"""Task, shape, format, and lines (None: none at all); the last two are drawn on a grid."""


def on_grid(lines: LineBias, seed: int) -> LineBias:
    """The same lines, going on from row to row of an output."""
    rng = random.Random(seed)

    def moved(line: Line, site: str) -> Line:
        if line.segment == CORNER or site == "encoder" or line.direction == "anti":
            return line
        if site == "self":
            return replace(line, segment=rng.randint(0, 2))
        return replace(line, beta=rng.randint(-1, 2), part_step=rng.randint(0, 1))

    return LineBias(
        {
            site: tuple(tuple(tuple(moved(x, site) for x in h) for h in k) for k in layers)
            for site, layers in lines.sites.items()
        }
    )


LOGITS = """(() => {
    const run = page.runs[%d], problem = parsed(run, '%s'), model = new Transformer(run.model);
    const state = model.encode(problem.ids), right = rightOutput(run, problem);
    const tokens = ["$", ...right.slice(0, -1)].map((token) => run.symbols.indexOf(token));
    return [problem.ids, tokens.map((token) => [...model.step(state, token).logits])];
})()"""


@needs_browser
def test_logits_are_those_of_python(chromium, both, random_bias, tmp_path):
    made = []
    for seed, (task, shape, form, how) in enumerate(CASES):
        config = plan_training(task, format=form, seed=seed)
        data = make_data(get_task(task), config.train)
        small = {"decoder_layers": 2, "heads": 4, "width": 16, "feedforward": 24, "scheme": "none"}
        options: dict[str, Any] = {**small, **shape}
        kind = options.pop("model", "transformer")
        model: Any = build_model(kind, MODEL_OPTIONS[kind](**options), data, seed)
        if how is not None:
            parts, heads = len(data.layout_at(1).parts), model.options.heads
            lines = random_bias(model.attention_layers, heads, seed, segments=parts, **how)
            lines = in_stream(lines, seed) if model.stream else lines
            lines = on_grid(lines, seed) if task == "long_multiplication" else lines
            model.set_lines(LineBias(lines.sites, -3.0) if seed == 1 else lines)
        made.append((data, model.double().eval(), variant(both[1], data, model=embedded(model))))
    path = tmp_path / "many.html"
    path.write_text(rendered([one for *_, one in made]), "utf-8")
    chromium.open(path)
    for i, (data, model, _) in enumerate(made):
        problems = data.task.sample(np.random.default_rng(i), 10, 9, "balanced")
        assert len(problems) == 10
        for row in range(10):
            text = data.task.write(problems, row)
            batch = data.lay_out(data.task.parse(text))
            ids, logits = chromium.ask(LOGITS % (i, text))
            assert ids == batch.source[0].tolist()
            with torch.no_grad():
                expected = model(batch.source, batch.target)[0].numpy()
            np.testing.assert_allclose(logits, expected, atol=1e-4, rtol=0)
    assert chromium.complaints() == []


@needs_browser
def test_the_page_knows_the_right_output_of_every_task_on_columns(chromium, both, tmp_path):
    named = [n for n, task in TASKS.items() if task.notation in ("digits", "rows")]
    datas = [make_data(get_task(n), plan_training(n).train) for n in named]
    known = [d for d in datas if d.task.rule()]
    assert len(known) >= 6
    page = tmp_path / "tasks.html"
    page.write_text(rendered([variant(both[0], data) for data in known]), "utf-8")
    chromium.open(page)
    for i, data in enumerate(known):
        problems = data.task.sample(np.random.default_rng(3), 15, 12, "mixed")
        for row in range(len(problems)):
            text = data.task.write(problems, row)
            batch = data.lay_out(data.task.parse(text))
            symbols = [data.vocabulary.symbols[k] for k in batch.target[0].tolist()]
            right = f"rightOutput(page.runs[{i}], parsed(page.runs[{i}], '{text}'))"
            assert chromium.ask(right) == symbols, text


def test_a_page_is_small_has_no_address_in_it_and_is_safe_from_its_data(both):
    said = "A small Transformer that learned successor from examples of at most "
    assert both[1]["intro"].startswith(said)
    spoiled = {**both[1], "name": "</script><script>alert(1)</script>"}
    text = rendered([spoiled])
    assert len(text.encode()) <= 5_000_000
    assert both[1]["intro"] in text
    assert "</script><script>alert" not in text
    assert "<b>&" not in text
    for word in ("http://", "https://", "//cdn", "@import"):
        assert word not in re.sub("http://www.w3.org/(2000/svg|1999/xlink)", "", text)


def test_a_run_without_a_result_is_refused_in_a_line(tiny, tmp_path):
    (tiny.vanilla / "result.json").unlink()
    said = run_command("report", tiny.vanilla, "--out", tmp_path / "page.html")
    assert "no result.json that vouches for it" in said.error(1)


def test_what_a_model_wrote_stands_on_a_page_that_cannot_compute_it(both):
    example = {"length": 9, "problem": "999", "answer": "99", "solution": "1000", "right": []}
    run = {**both[1], "model": None, "why": "it has positions", "examples": [example]}
    text = re.sub(r"\s+", " ", rendered([run]))
    assert "not computed in the page: it has positions" in text
    assert "<td>9</td><td>999</td><td>99</td><td>1000</td>" in text


def test_the_command_writes_a_page_and_says_where(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "heads_of", lambda run: None)
    said = run_command("report", "-q")
    assert said.out == f"{tiny.calibrated / 'report.html'}\n"
    assert (tiny.calibrated / "report.html").read_text("utf-8").startswith("<!doctype html>")
    out = tmp_path / "new" / "one.html"
    told = run_command("report", "zoo:addition", tiny.calibrated, "--out", out, "--json").json()
    assert told["runs"][1:] == [str(tiny.calibrated)] and told["file"] == str(out)
    text = out.read_text("utf-8")
    assert "abc train successor" in text and "that learned addition" in text
    assert "there is no run nothing" in run_command("report", "nothing").error(2)
    for runs in ([], [Run.open(tiny.calibrated)] * 13):
        with pytest.raises(UsageError, match="name 1 to 12"):
            write_page(runs, tmp_path / "page.html")
