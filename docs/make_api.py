"""Write ``api.md`` and ``config/keywords.py`` from the code: ``python docs/make_api.py``.

A test fails where either is stale.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import abc_calib
from abc_calib import config
from abc_calib.calibration.fits import FITS, Fit
from abc_calib.checked import own_signature
from abc_calib.config.options import Options, allowed, field_meta
from abc_calib.config.signature import iter_options
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
KEYWORDS = Path(config.__file__).parent / "keywords.py"
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
    *(fit.options_type for fit in FITS.values()),
    config.RetrainedOptions,
    config.EvaluateOptions,
    config.StressOptions,
    config.CertifyOptions,
    config.ProveOptions,
    config.FigureOptions,
    config.CurveOptions,
    config.DemoOptions,
    config.ReproduceOptions,
    config.WorkOptions,
    config.MachineOptions,
    config.TrackOptions,
]


def text_of(thing: Any) -> str:
    """A docstring in Markdown, without the list of options that verbs have in theirs."""
    doc = (inspect.getdoc(thing) or "").split("\n\nOptions\n-------")[0]
    return doc.replace("``", "`")


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
    own = own_signature(call)
    more = [p for p in inspect.signature(call).parameters if p not in own.parameters]
    parts = [f"### {name}", f"```text\n{written(name, own)}\n```", text_of(call)]
    if more:
        listed = ", ".join(f"`{option}`" for option in more)
        parts.append(textwrap.fill(f"Options: {listed}.", WIDTH, break_on_hyphens=False))
    return "\n\n".join(parts)


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


def table(group: type[Options]) -> str:
    """The options of a group: name, type, default, bounds, help."""
    rows = []
    for name, option in iter_options(group).items():
        if issubclass(group, config.CalibrationOptions) and name not in vars(group).get(
            "__annotations__", group.model_fields
        ):
            continue  # a fit has its own defaults, and the rest from all calibrations
        field = group.model_fields[name]
        listed = "tuple" in str(field.annotation)
        kind = ("int" if name == "lengths" else option.what) + (", ..." if listed else "")
        default = "–" if field.default in (None, "") else f"`{words_of(field.default)}`"
        flag = field_meta(field, "flag")
        said = " ".join(filter(None, [
            (field.description or "As above.").translate(ESCAPED),
            f"On the command line `{flag}`." if flag else "",
        ]))  # fmt: skip
        bounds = allowed(field).removeprefix("give ").removeprefix("choose ")
        bounds = bounds.removesuffix(" of at most 200 characters")
        cells = (f"`{name}`", kind.replace("|", " or "), default, bounds, said)
        rows.append([Markup(cell) for cell in cells])
    heading = f"### {group.__name__}\n\n{text_of(group).splitlines()[0]}\n\n"
    return heading + as_markdown(["option", "type", "default", "what it takes", "what it is"], rows)


def words_of(value: Any) -> str:
    """A default as it would be typed on the command line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


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
        "## Verbs",
        "All of them are names of `abc_calib`. Where a verb takes a run, a `Run`, a folder or a "
        "run's name\nwill do; leave it out (or give None) for the latest one.",
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
        "arguments\nof the verbs, the names in sweep files and the tables below are made. The flag "
        "of an option is its\nname with hyphens, such as `--learning-rate` for `learning_rate`. "
        "`–`: no default of its own.",
        *(table(group).rstrip() for group in GROUPS),
    ]
    return "\n\n".join(parts) + "\n"


def keywords() -> str:
    """All of ``keywords.py``: what type checkers know of the options of each verb."""
    parts = [
        '"""The options of verbs as type checkers see them: made by ``docs/make_api.py``."""',
        "from __future__ import annotations\n\nfrom collections.abc import Sequence\n"
        "from typing import Literal, TypedDict",
    ]
    verbs: dict[str, list[str]] = {}
    for name, value in sorted(all_verbs().items()):
        own = own_signature(value).parameters
        options = [o for o in getattr(value, "options", {}).values() if o.name not in own]
        if any(p.kind is p.VAR_KEYWORD for p in own.values()) and options:
            verbs[name] = [f"    {o.name}: {source(o.name, o.field.annotation)}" for o in options]
    users = {line: tuple(v for v in verbs if line in verbs[v]) for v in verbs for line in verbs[v]}
    shared = [
        some for some in dict.fromkeys(users.values()) if len(some) > 1 and several(users, some)
    ]
    for number, some in enumerate(shared):
        parts.append(class_of(f"Shared{number}", ["TypedDict"], some, several(users, some)))
    for name, lines in verbs.items():
        bases = [f"Shared{number}" for number, some in enumerate(shared) if name in some]
        rest = [line for line in lines if users[line] not in shared]
        title = "".join(part.title() for part in name.split("_"))
        parts.append(class_of(f"{title}Keywords", bases or ["TypedDict"], (name,), rest))
    return "\n\n".join(parts) + "\n"


def several(users: dict[str, tuple[str, ...]], some: tuple[str, ...]) -> list[str]:
    """The options that exactly these verbs have, if a class of their own pays."""
    lines = [line for line, verbs in users.items() if verbs == some]
    return lines if len(lines) > 3 else []


def class_of(name: str, bases: list[str], verbs: tuple[str, ...], lines: list[str]) -> str:
    """A class of options as code."""
    said = " and ".join(f"``{verb}``" for verb in verbs)
    head = f'\nclass {name}({", ".join(bases)}, total=False):\n    """Of {said}."""'
    return "\n".join([head, *([""] if lines else []), *lines])


def source(name: str, annotation: Any) -> str:
    """The type of an option as code; it may be left unset, and a scheme may be a class."""
    kinds = plain_of(annotation).split(" | ")
    more = ["type"] if name.endswith("scheme") else []
    return " | ".join(dict.fromkeys([*(k for k in kinds if k != "None"), *more, "None"]))


def plain_of(kind: Any) -> str:
    """A type without what pydantic knows of it, as code."""
    if get_origin(kind) is Annotated:
        return plain_of(get_args(kind)[0])
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(f'{x!r}' for x in get_args(kind))}]".replace("'", '"')
    if get_origin(kind) is tuple:
        return f"Sequence[{plain_of(get_args(kind)[0])}] | str"
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(plain_of, get_args(kind)))
    return "None" if kind is type(None) else str(kind.__name__)


if __name__ == "__main__":
    PAGE.write_text(page())
    KEYWORDS.write_text(keywords())
