"""Errors that a user is meant to read: one line each, no traceback.

``UsageError`` is for input that cannot be taken (exit code 2); ``AbcError`` for work that
failed (exit code 1). Both say what was given, what is allowed and what to do. ``Interrupted``
is for Ctrl-C (exit code 130).
"""

from __future__ import annotations


class AbcError(Exception):
    """Something failed; exit code 1."""


class Interrupted(AbcError):
    """Training was stopped by the user; the checkpoint is safe. Exit code 130."""


class UsageError(AbcError, ValueError):
    """Something was asked that is not possible; exit code 2."""
