"""Flags of fields: one ``typer.Option`` for each field of the groups in ``abc_calib.config``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from abc_calib.config import Options
from abc_calib.config.options import as_typed, field_meta, flag_of, type_of, values_of
from cli import completion

Group = type[Options] | Options
"""The options of a class; of an instance, with its values as defaults."""


@dataclass(frozen=True)
class Flag:
    """A field as a flag; ``default`` in words, empty where it has none."""

    name: str
    kind: type[Options]
    default: str

    @property
    def field(self) -> FieldInfo:
        return self.kind.model_fields[self.name]

    @property
    def flag(self) -> str:
        return flag_of(self.name, self.field)

    @property
    def type(self) -> type:
        return type_of(self.field)

    @property
    def help(self) -> str:
        """What it is and its default, except of a switch that is off."""
        text = self.field.description or ""
        is_shown = self.default not in ("", "no")
        return f"{text.rstrip('.')}; by default {self.default}." if is_shown else text

    def parameter(self) -> inspect.Parameter:
        """Return the parameter of a command: a switch, or a text that the group reads."""
        is_switch, panel = self.type is bool, field_meta(self.field, "panel")
        negative = f"/--no-{self.flag[2:]}" if self.default == "yes" else ""
        option = typer.Option(
            self.flag + negative,
            help=self.help,
            metavar=None if is_switch else f"<{values_of(self.field)}>",
            rich_help_panel=(self.kind.help_panel if panel is None else panel) or None,
            autocompletion=completion.task_names if self.name == "task" else None,
            show_default=False,
        )
        kind: Any = Annotated[(bool if is_switch else str) | None, option]
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind
        )


def flags_of(
    *groups: Group, without: tuple[str, ...] = (), defaults: Mapping[str, str] | None = None
) -> dict[str, Flag]:
    """Return the flags of all groups; one that several groups have is one, with each default.

    ``defaults``: in words, of fields whose default is not the group's.
    """
    flags: dict[str, Flag] = {}
    for group in groups:
        kind = group if isinstance(group, type) else type(group)
        for name, field in kind.model_fields.items():
            if name in without:
                continue
            value = field.default if isinstance(group, type) else getattr(group, name)
            is_said = value is None or "default" in (field.description or "")
            default = (defaults or {}).get(name) or ("" if is_said else as_typed(value))
            flag = flags.setdefault(name, Flag(name, kind, default))
            if default and default != flag.default:
                combined = f"{flag.default} ({kind.group_title}: {default})"
                flags[name] = replace(flag, default=combined)
    return flags
