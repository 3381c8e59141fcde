# SPDX-License-Identifier: Apache-2.0
"""Reads what flax writes of nested dicts of arrays (msgpack), such as Google's theta.state, without JAX and without a
package. A file is not believed: depth, lengths and shapes are held against what there is, and nothing in it is run."""

from __future__ import annotations

import math
import os
import struct
from typing import Any

MOST_BYTES = 1 << 28
_MOST_DEPTH = 32
_ARRAY, _SCALAR = 1, 3  # flax's codes of extensions
_DTYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_NUMBERS = dict(zip(range(0xCA, 0xD4), (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q")))
_LENGTHS = {0: ">B", 1: ">H", 2: ">I"}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_SIZED = {0xC4: "bytes", 0xC7: "extension", 0xD9: "text"}  # each of three, by the width of its length


class _Reader:
    def __init__(self, data: bytes, depth: int = 0) -> None:
        self.data, self.at, self.depth = data, 0, depth

    def take(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise ValueError(f"it ends within a value: {n} bytes are wanted at byte {self.at} of {len(self.data)}")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self) -> Any:
        tag = self.number(">B")
        if tag < 0x80 or tag >= 0xE0:
            return tag if tag < 0x80 else tag - 256
        if tag < 0xA0:
            return self.many(tag & 15, tag < 0x90)
        if tag < 0xC0:
            return self.text(tag & 31)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag in _NUMBERS:
            return self.number(_NUMBERS[tag])
        for first, kind in _SIZED.items():
            if first <= tag < first + 3:
                return getattr(self, kind)(self.number(_LENGTHS[tag - first]))
        if 0xD4 <= tag <= 0xD8:
            return self.extension(1 << (tag - 0xD4))
        if tag >= 0xDC:
            return self.many(self.number(">H" if tag in (0xDC, 0xDE) else ">I"), tag >= 0xDE)
        raise ValueError(f"byte {self.at - 1} is {tag:#x}, which begins no value")

    bytes = take

    def text(self, n: int) -> str:
        return self.take(n).decode()

    def many(self, n: int, is_map: bool) -> Any:
        if n > len(self.data) - self.at:  # each has a byte at least
            raise ValueError(f"it ends within a value: {n} members are wanted at byte {self.at} of {len(self.data)}")
        self.depth += 1
        if self.depth > _MOST_DEPTH:
            raise ValueError(f"values are nested more than {_MOST_DEPTH} deep")
        made: Any = [(self.key(), self.value()) if is_map else self.value() for _ in range(n)]
        self.depth -= 1
        if is_map and len(dict(made)) < n:
            raise ValueError("a dict has one key twice")
        return dict(made) if is_map else made

    def key(self) -> str:
        made = self.value()
        if not isinstance(made, str):
            raise ValueError(f"a key is {type(made).__name__}, it must be text")
        return made

    def extension(self, n: int) -> Any:
        import numpy

        code = self.number(">b")
        if code not in (_ARRAY, _SCALAR):
            raise ValueError(f"an extension of the code {code}, where arrays are 1 and scalars 3")
        if self.depth >= _MOST_DEPTH:
            raise ValueError(f"values are nested more than {_MOST_DEPTH} deep")
        inner = _Reader(self.take(n), self.depth + 1)
        said = inner.value()
        if not isinstance(said, list) or len(said) != 3 or inner.at != n:
            raise ValueError("an array is not a shape, a type and bytes")
        shape, name, data = said
        name = name.decode("ascii", "replace") if isinstance(name, bytes) else name
        if name not in _DTYPES:
            raise ValueError(f"an array is of {name!r:.40}, which is none of {', '.join(_DTYPES)}")
        if not isinstance(shape, list) or not all(isinstance(k, int) and k >= 0 for k in shape) or len(shape) > 32:
            raise ValueError(f"an array has the shape {shape!r:.80}")
        dtype = numpy.dtype(name).newbyteorder("<")
        if not isinstance(data, bytes) or len(data) != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"an array of {name} and the shape {shape} has another number of bytes")
        return numpy.frombuffer(data, dtype).reshape(shape)


def read(path: str | bytes | os.PathLike) -> dict[str, Any]:
    """The dict that a file holds; of a checkpoint of Google's, its `params`. ValueError says what is wrong with it."""
    name = os.fsdecode(path)
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    try:
        if len(data) > MOST_BYTES:
            raise ValueError(f"it is longer than {MOST_BYTES} bytes, and weights are not")
        reader = _Reader(data)
        made = reader.value()
        if reader.at != len(data):
            raise ValueError(f"{len(data) - reader.at} bytes lie behind its end")
        if not isinstance(made, dict):
            raise ValueError(f"it holds {type(made).__name__}, it must be a dict")
    except (ValueError, OverflowError) as error:  # UnicodeDecodeError too; an extent past 2^63
        raise ValueError(f"{name} is read as msgpack, as flax writes it: {error}") from None
    inner = made.get("params")
    return inner if isinstance(inner, dict) and {"gen_id", "step"} & made.keys() else made
