# SPDX-License-Identifier: Apache-2.0
"""Storage types by whatever name a caller has for them, and single values as the library takes them: template values,
init values, scalars. No array is looked at here, and no framework is imported but the one whose type is asked for."""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Sequence

from . import _kernel_abi as abi
from ._library import DTYPE_NAMES, DTYPES, ITEM_BYTES

# What NumPy, PyTorch and DLPack call the library's storage types.
LONG_NAMES: dict[str, str] = {
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "f64": "float64",
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "c64": "complex64",
}
CODES: dict[str, int] = {}  # by every name that is a storage type's
for _short, _long in LONG_NAMES.items():
    CODES[_short] = CODES[_long] = DTYPES[_short]
CODES.update(bfloat=DTYPES["bf16"], bool8=DTYPES["bool"], bool_=DTYPES["bool"])
# How the dialects call them, for those who write a template's value as the body would.
WORDS = {"half": "f16", "bfloat16_t": "bf16", "float16_t": "f16", "int64_t": "i64", "uint64_t": "u64"}
WORDS.update({f"{kind}{bits}_t": f"{kind[0]}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32)})
CODES.update({word: DTYPES[name] for word, name in WORDS.items()})
KNOWN = ", ".join(LONG_NAMES.values())

_INT64 = range(-(1 << 63), 1 << 63)
_UINT64 = range(1 << 64)


def _spelled(value: object) -> str | None:
    """What a storage type of any library calls itself; None for what is none."""
    if isinstance(value, str):
        return value.rpartition(".")[2]  # "mlx.core.float32", "torch.float32"
    numpy = sys.modules.get("numpy")
    if numpy is not None and (
        isinstance(value, numpy.dtype) or (isinstance(value, type) and issubclass(value, numpy.generic))
    ):
        made = numpy.dtype(value)
        return made.name if made.isnative else None
    if value is bool:
        return "bool"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.dtype):
        return str(value).rpartition(".")[2]
    if isinstance(value, type) or type(value).__name__ in ("Dtype", "_ScalarMeta", "DType"):
        # jax.numpy.float32 has the type in `dtype`, ml_dtypes.bfloat16 is a class, mlx.core.float32 says its name.
        return getattr(getattr(value, "dtype", None), "name", None) or (
            getattr(value, "__name__", None) or str(value).rpartition(".")[2]
        )
    return None


def code_or_none(value: object) -> int | None:
    """The library's code of a storage type; None for what is none. float and int say no size, so they are none."""
    name = _spelled(value)
    return None if name is None else CODES.get(name)


def code_of(what: str, value: object) -> int:
    """The library's code of a storage type. TypeError says `what` is wrong and what there is."""
    code = code_or_none(value)
    if code is None:
        raise TypeError(f"{what} is {value!r}; storage types are {KNOWN}")
    return code


def put_value(into: abi.Value, what: str, value: object) -> None:
    """A value by its kind. TypeError for what has none, ValueError for an integer of more than 64 bits."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    if value is None:
        into.kind = abi.NONE
    elif isinstance(value, bool):
        into.kind, into.integer = abi.BOOL, value
    elif isinstance(value, float):
        into.kind, into.real = abi.FLOAT, value
    elif (code := code_or_none(value)) is not None:
        into.kind, into.dtype = abi.DTYPE, code
    else:
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"{what} is {value!r}; it must be a storage type, a bool or an int") from None
        if number not in _INT64:
            raise ValueError(f"{what} is {number}, which does not fit into 64 bits")
        into.kind, into.integer = abi.INT, number


def value_of(value: abi.Value) -> object:
    """A value of the library's; a storage type by its name."""
    if value.kind == abi.DTYPE:
        return name_of(value.dtype)
    return (None, bool(value.integer), value.integer, value.real)[value.kind]


def scalar(what: str, value: int | float | complex) -> tuple[int, bytes]:
    """(code, its bytes) of a number of Python's, with the types that MLX gives them: bool, int32, float32; an int that
    needs it is int64 or uint64. ValueError for one of more than 64 bits."""
    if value is True or value is False:
        return DTYPES["bool"], struct.pack("<B", value)
    if isinstance(value, float):
        try:
            return DTYPES["f32"], struct.pack("<f", value)
        except OverflowError:  # a finite double that float32 has no finite number for: to nearest, infinity
            return DTYPES["f32"], struct.pack("<f", float("inf") if value > 0 else -float("inf"))
    if isinstance(value, complex):
        return DTYPES["c64"], struct.pack("<2f", value.real, value.imag)
    if -(1 << 31) <= value < 1 << 31:
        return DTYPES["i32"], struct.pack("<i", value)
    if value in _INT64:
        return DTYPES["i64"], struct.pack("<q", value)
    if value in _UINT64:
        return DTYPES["u64"], struct.pack("<Q", value)
    raise ValueError(f"{what} is {value}, which does not fit into 64 bits")


def templates_of(what: str, template: object) -> list[tuple[str, object]]:
    """The pairs of a template: a list of (name, value), or a dict. TypeError for anything else."""
    if template is None:
        return []
    made = []
    try:
        for name, value in template.items() if hasattr(template, "items") else template:  # type: ignore[union-attr]
            made.append((name, value))
    except (TypeError, ValueError):
        raise TypeError(f"{what}: template is {template!r}; it must be a list of pairs of name and value") from None
    for name, _ in made:
        if not isinstance(name, str):
            raise TypeError(f"{what}: template has the name {name!r}, it must be a str")
    return made


def three(what: str, value: object, most: int) -> tuple[int, int, int]:
    """A size along x, y, z; those that are left out are 1. The library refuses what is zero; what its words cannot hold
    is refused here."""
    given: Sequence = value if isinstance(value, Sequence) else (value,)  # type: ignore[assignment]
    try:
        made = [operator.index(number) for number in given]
    except TypeError:
        raise TypeError(f"{what} is {value!r}; it must be three integers") from None
    if not 1 <= len(made) <= 3:
        raise ValueError(f"{what} is {value!r}; it must be three integers")
    for number in made:
        if not 0 <= number < 1 << most:
            raise ValueError(f"{what} is {tuple(made)}; its numbers lie in [0, 2^{most})")
    return tuple(made + [1] * (3 - len(made)))  # type: ignore[return-value]


def shape_of(what: str, value: object) -> tuple[int, ...]:
    """A shape. TypeError for what is none, ValueError for a negative extent."""
    try:
        made = tuple(operator.index(extent) for extent in value)  # type: ignore[attr-defined]
    except TypeError:
        raise TypeError(f"{what} is {value!r}; it must be a sequence of integers") from None
    if any(extent < 0 for extent in made):
        raise ValueError(f"{what} is {made}; an extent is not negative")
    return made


def bytes_of(code: int) -> int:
    return ITEM_BYTES[code]


def name_of(code: int) -> str:
    """The long name: "float32"."""
    return LONG_NAMES.get(DTYPE_NAMES[code], DTYPE_NAMES[code])
