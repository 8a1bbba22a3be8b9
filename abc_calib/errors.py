"""Errors that a user is meant to read: one line each, no traceback.

``UsageError`` is for input that cannot be taken (exit code 2); ``AbcError`` for work that
failed (exit code 1). Both say what was given, what is allowed and what to do. ``Interrupted``
is for Ctrl-C (exit code 130). ``AbcWarning``: work goes on, but may not lead to what is wanted.
"""

from __future__ import annotations


class AbcError(Exception):
    """Something failed; exit code 1."""


class Interrupted(AbcError):
    """Training was stopped by the user; the checkpoint is safe. Exit code 130."""


class UsageError(AbcError, ValueError):
    """Something was asked that is not possible; exit code 2."""


class AbcWarning(UserWarning):
    """Something that a user should know, in one line."""


class OptionError(UsageError):
    """An option has a value that it cannot have; ``rule`` says what it can.

    ``option`` is the name of its field, which a command shows as the flag that was typed.
    """

    def __init__(self, option: str, value: object, rule: str):
        super().__init__(option, value, rule)
        self.option, self.value, self.rule = option, value, rule

    def __str__(self) -> str:
        return f"{self.option} = {shortened(repr(self.value))}: {self.rule}"


def shortened(text: str, most: int = 60) -> str:
    """``text`` with its middle left out where it is long."""
    half = most // 2 - 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]} ({len(text)} characters)"
