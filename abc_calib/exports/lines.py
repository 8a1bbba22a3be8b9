"""A run's lines as one Python file that needs numpy, jax or torch, and nothing of this program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from abc_calib.errors import UsageError
from abc_calib.exports.templates import flex, lines, mask
from abc_calib.files import write_text
from abc_calib.geometry import SITES, Heads, LineBias, Site
from abc_calib.geometry.lines import formula
from abc_calib.nn.build import model_type
from abc_calib.nn.transformer.model import Transformer
from abc_calib.runs import Run
from abc_calib.version import __version__

Target = Literal["flex", "mask", "numpy", "jax"]
MADE = {
    "flex": (
        [lines, flex],
        "For flex_attention: mods(SITE, LAYER, source, read), and block_mask of the same",
    ),
    "mask": (
        [lines, mask],
        "For scaled_dot_product_attention: attn_mask(SITE, LAYER, source, read)",
    ),
    "numpy": ([lines], "An array of any size: bias(SITE, LAYER, source, read)"),
    "jax": ([lines], "An array of any size: bias(SITE, LAYER, source, read)"),
}


def opened(run: Run | Path | str | None) -> Run:
    """The run; ``UsageError`` if it has no lines, or its model is not a Transformer of ours."""
    found = Run.open(run)
    found.check()
    if not issubclass(model_type(found.config.kind), Transformer):
        raise UsageError(
            f"{found} is a {found.config.model.label}: only models of the kinds transformer and "
            "decoder are exported"
        )
    found.lines()
    return found


def place(run: Run, name: str, out: Path | str | None) -> Path:
    """The file to write: ``out``, which must be new, or one of that name in the run's folder."""
    if out is None:
        (run.path / "exports").mkdir(exist_ok=True)
        return run.path / "exports" / name
    if (path := Path(out)).exists():
        raise UsageError(f"{path} is there already: name a new file")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def export_lines(
    run: Run | Path | str | None, *, to: Target, out: Path | str | None = None
) -> Path:
    """Write the lines of a calibrated run as a Python file of its own.

    ``to``: ``flex`` has ``score_mod`` and ``mask_mod`` for ``torch.nn.attention.flex_attention``,
    ``mask`` a dense mask for ``scaled_dot_product_attention``, ``numpy`` and ``jax`` arrays.
    ``out``: a new file, by default ``exports/lines_TO.py`` in the run's folder. Raises
    ``UsageError`` for a run without lines, and for models that are not of this program.
    """
    found = opened(run)
    path = place(found, f"lines_{to}.py", out)
    write_text(path, written(found.fresh_model(), to, found.path.name))
    return path


def written(model: Any, to: Target, name: str) -> str:
    """The text of the file for a model with lines, which comes from a run of that name."""
    bias, (modules, said) = model.lines, MADE[to]
    texts = [Path(str(one.__file__)).read_text("utf-8") for one in modules]
    imports, codes = zip(*(text.split("\n# Code\n") for text in texts), strict=True)
    named = {line for text in imports for line in re.findall(r"^(?:import|from) .*", text, re.M)}
    needed = sorted(line for line in named if "abc_calib" not in line and "__future__" not in line)
    sites = "stream" if bias.stream else " or ".join(bias.sites)
    text = "\n".join(
        [
            f'"""Lines of {name}, written by abc-calib {__version__}.',
            "",
            f"{said}.",
            f"SITE is {sites}; LAYER counts from 0. Places says what source and read are.",
            '"""',
            "",
            "from __future__ import annotations",
            "",
            *needed,
            "",
            *constants(model.tokens, bias, model.options.heads),
            "\n\n".join(codes).rstrip(),
            "",
        ]
    )
    if to == "jax":
        text = re.sub(r"\bnp\b", "jnp", text).replace("import numpy", "import jax.numpy")
    return text


def constants(tokens: Any, bias: LineBias, heads: int) -> list[str]:
    """What the code counts by: token ids, and the formula of every line."""
    off = "-np.inf" if bias.off_line_bias is None else repr(bias.off_line_bias)
    rows = [f"LINES: dict = {{  # {', '.join(FIELDS)}: see Places.key"]
    for site in SITES:
        if layers := bias.sites.get(site):
            rows += [f'    "{site}": [', *_layers(site, layers), "    ],"]
    return [
        f"DELIMITERS, ROWS, PAD = {tokens.delimiters!r}, {tokens.rows!r}, {tokens.pad}",
        f"OFF, HEADS = {off}, {heads}  # added to the scores of keys off the lines",
        *rows,
        "}",
        "",
    ]


FIELDS = ("origin", "slope", "shift", "low", "high", "leaves", "down", "step", "value")


def _layers(site: Site, layers: tuple[Heads, ...]) -> list[str]:
    rows = []
    for number, layer in enumerate(layers):
        rows.append(f"        [  # layer {number}")
        for h, head in enumerate(layer):
            found = [(*map(int, formula(line, site)), line.value) for line in head]
            names = "; ".join(line.label(site) for line in head) or "no line"
            rows.append(f"            {found},  # head {h}: {names}")
        rows.append("        ],")
    return rows
