# SPDX-License-Identifier: Apache-2.0
"""Whole-number expressions over names, as a kernel.json has them for extents, grids and template values:
"ceildiv(n, TILE) * 32". Nothing of Python is run: the text is parsed once and computed from its tree, with the words
and the rounding of the command's own (division as C has it)."""

from __future__ import annotations

import re
from collections.abc import Mapping

_TOKEN = re.compile(r"[ \t]*(?:(\d+)(?![\w.])|([A-Za-z_][\w.]*)|([-+*/%(),]))", re.ASCII)
_MOST_DEPTH = 64
_MOST_LENGTH = 4096


def _divide(a, b):
    made = a // b
    return made + 1 if made < 0 and made * b != a else made


def _ceildiv(a, b):
    if b < 0:
        raise ValueError("a division by a negative number")
    return (a + b - 1) // b


_OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: a - _divide(a, b) * b,
}
_FUNCTIONS = {  # (how many numbers: at least, at most)
    "min": (min, 2, 64),
    "max": (max, 2, 64),
    "ceildiv": (_ceildiv, 2, 2),
    "align": (lambda a, b: _ceildiv(a, b) * b, 2, 2),
}


class Expression:
    """One text, parsed. `names`: those that it wants values of. ValueError says what is wrong and where."""

    __slots__ = ("_at", "_depth", "_tokens", "_tree", "names", "text")

    def __init__(self, text: str | int) -> None:
        if isinstance(text, bool) or not isinstance(text, (str, int)):
            raise ValueError(f"{text!r} is neither a whole number nor an expression")
        self.text = str(text)
        self.names: set[str] = set()
        if len(self.text) > _MOST_LENGTH:
            raise ValueError(f"an expression of {len(self.text)} characters, at most {_MOST_LENGTH} are read")
        self._tokens = self._cut()
        self._at = self._depth = 0
        self._tree = self._sum()
        if self._at < len(self._tokens):
            raise self._wrong("an operator or the end is missing")

    def __call__(self, names: Mapping[str, int]):
        """Its value. ValueError for an unknown name and for a division by zero."""
        try:
            return _compute(self._tree, names)
        except ZeroDivisionError:
            raise ValueError(f'a division by zero in "{self.text}"') from None
        except KeyError as error:
            known = ", ".join(sorted(names)) or "none"
            raise ValueError(f'an unknown name {error.args[0]} in "{self.text}" (known: {known})') from None
        except ValueError as error:
            raise ValueError(f'{error} in "{self.text}"') from None

    # ---- parsing ----
    def _cut(self) -> list[tuple[str, str, int]]:
        made: list[tuple[str, str, int]] = []
        at = 0
        text = self.text.rstrip(" \t")
        while at < len(text):
            found = _TOKEN.match(text, at)
            if not found:
                raise ValueError(f'no number, name or operator at character {at + 1} of "{self.text}"')
            group = found.lastindex
            assert group is not None  # each of the alternatives is a group
            made.append((("number", "name", "mark")[group - 1], found[group], found.start(group)))
            at = found.end()
        return made

    def _wrong(self, what: str) -> ValueError:
        at = self._tokens[self._at][2] if self._at < len(self._tokens) else len(self.text)
        return ValueError(f'{what} at character {at + 1} of "{self.text}"')

    def _take(self, marks: str) -> str | None:
        if self._at < len(self._tokens):
            kind, text, _ = self._tokens[self._at]
            if kind == "mark" and text in marks:
                self._at += 1
                return text
        return None

    def _sum(self):
        tree = self._product()
        while mark := self._take("+-"):
            tree = (mark, tree, self._product())
        return tree

    def _product(self):
        tree = self._unit()
        while mark := self._take("*/%"):
            tree = (mark, tree, self._unit())
        return tree

    def _unit(self):
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._wrong(f"more than {_MOST_DEPTH} parentheses and signs within each other")
        if self._take("-"):
            made = ("-", 0, self._unit())
        elif self._take("("):
            made = self._sum()
            self._close()
        elif self._at < len(self._tokens) and self._tokens[self._at][0] != "mark":
            kind, text, _ = self._tokens[self._at]
            self._at += 1
            made = int(text) if kind == "number" else self._name(text)
        else:
            raise self._wrong("a number, name or ( is missing")
        self._depth -= 1
        return made

    def _close(self) -> None:
        if not self._take(")"):
            raise self._wrong("a ) is missing")

    def _name(self, name: str):
        if name not in _FUNCTIONS or not self._take("("):
            self.names.add(name)
            return name
        _, least, most = _FUNCTIONS[name]
        arguments = [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        self._close()
        if not least <= len(arguments) <= most:
            raise self._wrong(f"{name} has {len(arguments)} numbers, which is not how many it wants")
        return (name, *arguments)


def _compute(tree, names):
    if isinstance(tree, tuple):
        values = [_compute(part, names) for part in tree[1:]]
        if tree[0] in _OPERATIONS:
            return _OPERATIONS[tree[0]](*values)
        return _FUNCTIONS[tree[0]][0](*values)
    return names[tree] if isinstance(tree, str) else tree
