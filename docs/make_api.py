"""Write ``api.md`` from the code: ``python docs/make_api.py``.

A test fails where it is stale.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

import abc_calib
from abc_calib import config
from abc_calib.calibration.fits import FITS, Fit
from abc_calib.config.options import FLAGS, Options, as_typed, values_of
from abc_calib.data import DATA, Data
from abc_calib.nn.base import Model
from abc_calib.nn.build import MODELS
from abc_calib.nn.positions import SCHEMES, Scheme
from abc_calib.nn.recurrent.attenders import ATTENDERS, Attender
from abc_calib.reproduction.targets import TARGETS, Target
from abc_calib.text import Markup, as_markdown
from abc_calib.training.recipes import RECIPES
from tasks import TASKS, Task

PAGE = Path(__file__).parent / "api.md"
WIDTH = 100
ESCAPED = str.maketrans({c: f"\\{c}" for c in "*_|<>"})

CONTRACTS: dict[type, str] = {
    Task: "`tasks.TASKS`",
    Data: "`abc_calib.data.DATA`, by the notation of a task",
    Model: "`abc_calib.nn.build.MODELS`; options in `config.MODEL_OPTIONS`, recipe in `RECIPES`",
    Scheme: "`abc_calib.nn.positions.SCHEMES`",
    Attender: "`abc_calib.nn.recurrent.attenders.ATTENDERS`",
    Fit: "`abc_calib.calibration.fits.FITS`",
    Target: "`abc_calib.reproduction.targets.TARGETS`",
}
"""Base classes, and where what is made of them is listed."""

REGISTRIES: dict[str, dict[str, Any]] = {
    "Task": TASKS,
    "Data": DATA,
    "Model": MODELS,
    "Recipe": RECIPES,
    "Scheme": SCHEMES,
    "Attender": ATTENDERS,
    "Fit": FITS,
    "Target": TARGETS,
}

GROUPS: list[type[Options]] = [
    config.TaskOptions,
    config.RecipeOptions,
    config.TrainOptions,
    *config.MODEL_OPTIONS.values(),
    config.CalibrationOptions,
    config.RetrainedOptions,
    config.EvaluateOptions,
    config.StressOptions,
    config.CertifyOptions,
    config.LookOptions,
    config.DrawOptions,
    config.FigureOptions,
    config.WorkOptions,
]


def text_of(thing: Any) -> str:
    """A docstring in Markdown."""
    return (inspect.getdoc(thing) or "").replace("``", "`")


def first_of(thing: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(text_of(thing).split("\n\n")[0].split())


def default_of(value: Any) -> str:
    """A default as it is written; functions by their names, long ones cut."""
    if callable(value):
        return str(getattr(value, "__name__", "...")).replace("<lambda>", "...")
    if value == abc_calib.__version__:
        return "__version__"
    shown = "..." if repr(value) == "<factory>" else repr(value)
    if len(shown) > 40 and isinstance(value, tuple):
        return f"({value[0]!r}, ..., {value[-1]!r})"
    return shown


def written(name: str, signature: inspect.Signature) -> str:
    """A signature as code, one parameter a line where it is long."""
    parts, starred = [], False
    for p in signature.parameters.values():
        if p.name in ("self", "cls"):
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        starred = starred or star == "*"
        noted = "" if p.annotation is p.empty else f": {kind_of(p.annotation)}"
        equals = "" if p.default is p.empty else f" = {default_of(p.default)}"
        parts.append(f"{star}{p.name}{noted}{equals}")
    gives = signature.return_annotation
    back = "" if gives in (signature.empty, "None", None) else f" -> {kind_of(gives)}"
    line = f"{name}({', '.join(parts)}){back}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){back}"


def kind_of(annotation: Any) -> str:
    """An annotation as it is typed."""
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "Any")


def verb(name: str, call: Any) -> str:
    """The entry of a function."""
    shown = f"```text\n{written(name, inspect.signature(call))}\n```"
    return "\n\n".join([f"### {name}", shown, text_of(call)])


def entry(kind: type, name: str = "", note: str = "") -> str:
    """The entry of a class: how it is made, what it is, and a line for each member."""
    name = name or kind.__name__
    own = [b for b in kind.__mro__ if b.__module__.split(".")[0] in ("abc_calib", "tasks")]
    makes = next((b for b in own if "__init__" in vars(b)), None)
    made = written(name, inspect.signature(vars(makes)["__init__"])) if makes else f"{name}()"
    if makes is None and issubclass(kind, Exception):
        made = f"{name}(message: str)"
    parts = [f"### {name}", f"```text\n{made}\n```", text_of(kind)]
    parts += [f"Listed in {note}."] if note else []
    lines = []
    for member, value in vars(kind).items():
        if member.startswith("_"):
            continue
        call = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(call):
            shape = " ".join(written(member, inspect.signature(call)).split())
            shape = shape.replace("( ", "(").replace(", )", ")")
            must = "**to write:** " if getattr(call, "__isabstractmethod__", False) else ""
            lines.append(f"- `{shape}`: {must}{first_of(call)}".rstrip(": "))
        elif isinstance(value, property) or hasattr(value, "func"):
            told = first_of(getattr(value, "fget", None) or value.func)
            lines.append(f"- `{member}`: {told}".rstrip(": "))
    return "\n\n".join([*parts, "\n".join(lines)]).rstrip()


def allowed(field: FieldInfo) -> str:
    """What a field takes, as words: ``give a whole number from 1 to 64``."""
    annotation: Any = Annotated[field.annotation, field]
    schema = TypeAdapter(annotation).json_schema()
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    kind = next((kind for kind in kinds if kind.get("type") == "array"), kinds[0])
    several = "items" in kind
    kind = kind.get("items", kind)
    if "enum" in kind:
        *others, last = map(str, kind["enum"])
        several_of, link = ("among ", "and") if several else ("", "or")
        return f"choose {several_of}{', '.join(others)} {link} {last}"
    if kind.get("type") == "boolean":
        return "give true or false"
    if number := {"integer": "whole number", "number": "number"}.get(kind.get("type", "")):
        return f"give {f'{number}s' if several else f'a {number}'}{_bounds(kind)}"
    return "give words" if several else "give a word"


def _bounds(kind: Mapping[str, Any]) -> str:
    """`` from 1 to 64``: the bounds of a number's JSON schema."""
    names = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    least, above, most, below = (
        f"{kind[n]:,}".removesuffix(".0") if n in kind else "" for n in names
    )
    upper = f"below {below}" if below else most if least else f"at most {most}" if most else ""
    if least:
        return f" from {least} to {upper}" if upper else f" of {least} or more"
    if above:
        return f" above {above} and {upper}" if upper else f" above {above}"
    return f" of {upper}" if most else f" {upper}".rstrip()


def table(group: type[Options]) -> str:
    """The options of a group: name, type, default, bounds, help."""
    rows = []
    for name, field in group.model_fields.items():
        if issubclass(group, config.CalibrationOptions) and name not in vars(group).get(
            "__annotations__", group.model_fields
        ):
            continue  # a fit has its own defaults, and the rest from all calibrations
        listed = "tuple" in str(field.annotation)
        kind = ("int" if name == "lengths" else values_of(field)) + (", ..." if listed else "")
        is_told = "by default" in (field.description or "")
        default = "–" if is_told or field.default in (None, "") else f"`{as_typed(field.default)}`"
        flag = FLAGS.get(name)
        said = " ".join(filter(None, [
            (field.description or "As above.").translate(ESCAPED),
            f"On the command line `--{flag}`." if flag else "",
        ]))  # fmt: skip
        bounds = allowed(field).removeprefix("give ").removeprefix("choose ")
        cells = (f"`{name}`", kind.replace("|", " or "), default, bounds, said)
        rows.append([Markup(cell) for cell in cells])
    heading = f"### {group.__name__}\n\n{text_of(group).splitlines()[0]}\n\n"
    return heading + as_markdown(["option", "type", "default", "what it takes", "what it is"], rows)


def public() -> dict[str, Any]:
    """What the package offers, by name."""
    return {n: getattr(abc_calib, n) for n in abc_calib.__all__ if not n.startswith("_")}


def all_verbs() -> dict[str, Any]:
    """The functions among it."""
    return {name: value for name, value in public().items() if not isinstance(value, type)}


def page() -> str:
    """All of ``api.md``."""
    values, verbs = public(), all_verbs()
    classes = {name: value for name, value in values.items() if isinstance(value, type)}
    listed = [
        [kind, Markup(", ".join(f"`{name}`" for name in known))]
        for kind, known in REGISTRIES.items()
    ]
    parts = [
        "# API",
        "Made by `python docs/make_api.py` from the code; a test fails where the two differ. What "
        "the\nwords mean is in the [glossary](glossary.md), how packages hang together in "
        "the [architecture](architecture.md).",
        "## Functions",
        "All of them are names of `abc_calib`. Where a function takes a run, give a `Run`, a "
        "folder or a\nrun's name; leave it out (or give None) for the latest one.",
        *(verb(name, value) for name, value in sorted(verbs.items())),
        "## Classes",
        *(entry(value, name) for name, value in sorted(classes.items())),
        "## Contracts",
        "Base classes, one for each thing that can be added: see "
        "[CONTRIBUTING.md](../CONTRIBUTING.md).",
        *(entry(kind, note=note) for kind, note in CONTRACTS.items()),
        "### What there is",
        as_markdown(["kind", "names"], listed).rstrip(),
        "## Options",
        "One field each in `abc_calib.config`, from which the flags of the commands, the keyword "
        "arguments\nof functions, the names in sweep files and the tables below are made. The flag "
        "of an option is its\nname with hyphens, such as `--learning-rate` for `learning_rate`. "
        "`–`: no default of its own.",
        *(table(group).rstrip() for group in GROUPS),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
