# SPDX-License-Identifier: Apache-2.0
"""The lists of a call, and how a mixed one is parted: a column holds the arrays of one role, a group those places of
the list whose arrays are of one kind (storage types and device), which is what one call of the library takes. Nothing
is called here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import _arrays, _streams
from ._library import ITEM_BYTES
from ._ops import Op, Role
from ._tensors import Tensors

Key = tuple[int, tuple[int, int]]  # (storage type, device)


def _either(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


class Column:
    """The arrays of one role. `views` is None where all of them are of one kind (`uniform`). written: may the call
    write them?"""

    __slots__ = ("addresses", "arrays", "keys", "read_only", "role", "shapes", "strides", "uniform", "views")
    addresses: list[int]
    keys: list[Key | None]  # of those that are not uniform
    shapes: list[Sequence[int]]
    strides: list[Sequence[int] | None] | None

    def __init__(self, op_name: str, role: Role, argument: object, order: _streams.Order, written: bool) -> None:
        self.role = role
        self.read_only: dict[int, str] = {}  # by place, what sentences call it
        words = f"{op_name}: {role.plural}"
        self.arrays, alone = _arrays.listed(words, argument)
        self.uniform: Key | None = None
        self.views: list[_arrays.View | _arrays.Later | None] | None = None
        quick = _arrays.uniform(self.arrays, order, written)
        if quick:
            self.addresses, code, device, self.shapes = quick
            self.uniform = (code, device)
            self.strides = None
            return
        self.views = []
        for k, value in enumerate(self.arrays):
            name = words if alone else f"{words}[{k}]"
            if value is None and role.optional:
                self.views.append(None)
            else:
                self.views.append(_arrays.view(name, value, order, written))

    def __len__(self) -> int:
        return len(self.arrays)

    def settle(self, row_types: frozenset[int], order: _streams.Order) -> None:
        """What could not be said before all arrays had been looked at. Raises for what no call could take."""
        if self.views is None:
            return
        views: list[_arrays.View | None] = []
        keys: list[Key | None] = []
        for k, looked in enumerate(self.views):
            view = looked.view(order) if isinstance(looked, _arrays.Later) else looked
            views.append(view)
            if view is None:
                keys.append(None)
                continue
            if view.code is None:
                names = [_arrays.LONG_NAMES[code] for code in sorted(row_types)]
                raise TypeError(f"{view.name} is {view.dtype}; {self.role.plural} may be {_either(names)}")
            if view.read_only:
                self.read_only[k] = f"{view.name} ({type(self.arrays[k]).__qualname__})"
            keys.append((view.code, view.device))
        self.addresses = [view.address if view else 0 for view in views]
        self.shapes = [view.shape if view else () for view in views]
        strides = [view.strides if view else None for view in views]
        self.strides = strides if any(step is not None for step in strides) else None
        self.keys = keys
        if len(set(keys)) == 1:
            self.uniform = keys[0]

    def refuse_read_only(self, places: Sequence[int] | None) -> None:
        for k, name in self.read_only.items():
            if places is None or k in places:
                raise ValueError(f"{name} is read-only, and it would be written")

    def key(self, k: int) -> Key | None:
        """Of what kind an array is; None: it is not given."""
        return self.uniform or self.keys[k]

    def kind(self, k: int) -> Key:
        """As key(), where the role is not optional."""
        key = self.key(k)
        assert key is not None
        return key


class Group:
    """Tensors of one kind: one call of the library. `places` are those in the user's lists; None: all, in order.
    `written`: by role, whether the call writes it."""

    __slots__ = ("device", "n", "places", "tensors", "written")

    def __init__(self, columns: Sequence[Column | None], places: list[int] | None, n: int) -> None:
        self.places = places
        self.n = n
        self.tensors: list[Tensors | None] = []
        first = None
        self.device = _arrays.CPU_DEVICE
        for column in columns:
            key = column.key(places[0] if places else 0) if column is not None and n else None
            if column is None or key is None:
                self.tensors.append(None)
                continue
            addresses, shapes, strides = column.addresses, column.shapes, column.strides
            if places is not None:
                addresses, shapes = [addresses[k] for k in places], [shapes[k] for k in places]
                strides = None if strides is None else [strides[k] for k in places]
            if first is None:
                self.device = key[1]
            if first is not None and (shapes, strides, key[1]) == first[1:]:
                made = first[0].like(addresses, key[0])
            else:
                made = Tensors(addresses, key[0], shapes, strides, key[1])
            if first is None:
                first = (made, shapes, strides, key[1])
            self.tensors.append(made)
        self.written = tuple([column is not None and column.role.written for column in columns])

    def see_written(self, op: Op, columns: Sequence[Column | None]) -> None:
        """Finds out what the op writes of these. ValueError names an array of it that is read-only."""
        self.written = op.written(tuple([None if made is None else made.dtype for made in self.tensors]))
        for column, written in zip(columns, self.written):
            if column is not None and written:
                column.refuse_read_only(self.places)

    def spans(self, columns: Sequence[Column | None]) -> list[Span]:
        """(begin, end, written, name) of the memory of every array that is not empty."""
        places = range(self.n) if self.places is None else self.places
        found = []
        for column, tensors, written in zip(columns, self.tensors, self.written):
            if column is None or tensors is None:
                continue
            item_bytes = ITEM_BYTES[tensors.dtype]
            for k in places:
                n_bytes = item_bytes
                for extent in column.shapes[k]:
                    n_bytes *= extent
                if n_bytes:
                    begin = column.addresses[k]
                    found.append((begin, begin + n_bytes, written, f"{column.role.name}[{k}]"))
        return found


def groups_of(columns: Sequence[Column | None]) -> list[Group]:
    """All places of the list, parted by kind; groups in the order of their first places."""
    given = [column for column in columns if column is not None]
    n = len(given[0])
    if n == 0 or all(column.uniform for column in given):
        return [Group(columns, None, n)]
    places: dict[tuple, list[int]] = {}
    for k in range(n):
        places.setdefault(tuple(column.key(k) for column in given), []).append(k)
    if len(places) == 1:
        return [Group(columns, None, n)]
    return [Group(columns, indices, len(indices)) for indices in places.values()]


def check_overlap(op_name: str, columns: Sequence[Column | None], groups: Sequence[Group]) -> None:
    """Within a group the library looks; here groups of one device are held against each other. ValueError names the two
    arrays."""
    for device in {group.device for group in groups}:
        found = overlapping(span for group in groups if group.device == device for span in group.spans(columns))
        if found:
            one, two = (f"{name} (0x{begin:x} to 0x{end:x})" for begin, end, _, name in found)
            raise ValueError(f"{op_name}: {one} and {two} share memory, and at least one of them is written")


Span = tuple[int, int, bool, str]  # of memory: begin, end, written, name


def overlapping(spans: Iterable[Span]) -> tuple[Span, Span] | None:
    """Two of them that share memory, one of which is written; None: there are none."""
    furthest: Span = (0, 0, False, "")
    furthest_written = furthest
    for span in sorted(spans):
        other = furthest if span[2] else furthest_written
        if span[0] < other[1]:
            return other, span
        furthest = max(furthest, span, key=lambda each: each[1])
        if span[2]:
            furthest_written = max(furthest_written, span, key=lambda each: each[1])
    return None
