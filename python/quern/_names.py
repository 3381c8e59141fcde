# SPDX-License-Identifier: Apache-2.0
"""The error for a name that a module does not have: it suggests the nearest one."""

from __future__ import annotations

from collections.abc import Iterable


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Case and underscores do not count."""
    import difflib

    by_plain = {_plain(one): one for one in known}
    found = difflib.get_close_matches(_plain(name), list(by_plain), 1)
    return by_plain[found[0]] if found else None


def absent(module: str, name: str, known: Iterable[str], instead: str | None = None) -> AttributeError:
    """instead: where a word explains more than the nearest name."""
    sentence = f"module {module!r} has no attribute {name!r}"
    if name.startswith("__"):  # Python itself looks for these
        return AttributeError(sentence)
    if instead is None and (near := nearest(name, known)):
        instead = f"did you mean {module}.{near}?"
    return AttributeError(f"{sentence}; {instead}" if instead else sentence)
