# SPDX-License-Identifier: Apache-2.0
"""Calls of ops that are one entry into C, from the arrays to the launch (src/python/fast_call.c): which objects of
NumPy's and PyTorch's it works with is said here, once each is loaded. Nothing is refused here: a fast call answers
NotImplemented to whatever is out of the ordinary, and the longer way has the sentence."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable, Sequence

from . import _abi, _streams, _threads
from ._library import DTYPES, check, compare, declare, lib, path, pylib
from ._ops import Op
from ._signature import keywords
from ._versions import counter

_MOST_DTYPES = 32
_STORAGE = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64", "f8e4m3": "float8_e4m3fn"}
_STORAGE.update({f"{kind[0]}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)})
_STORAGE["bool"] = "bool"


class _Dtype(ctypes.Structure):
    _fields_ = [("object", ctypes.c_void_p), ("code", ctypes.c_int)]


class _NumPy(ctypes.Structure):
    _fields_ = [
        ("head_bytes", ctypes.c_size_t),
        *((name, ctypes.c_void_p) for name in ("array", "empty", "empty_like", "pool", "probe", "probe_data")),
        ("dtypes", _Dtype * _MOST_DTYPES),
    ]


class _Torch(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("tensor", "parameter", "size", "table")),
        ("guards", ctypes.c_void_p * 8),
        *((name, ctypes.c_void_p) for name in ("forward_ad", "is_grad_enabled", "pool", "is_neg")),
        *((name, ctypes.c_void_p) for name in ("count_writes", "empty_like", "raw_stream")),
        ("dtypes", _Dtype * _MOST_DTYPES),
    ]


class _Word(ctypes.Structure):
    _fields_ = [("first", ctypes.c_size_t), ("n", ctypes.c_size_t), ("none", ctypes.c_void_p)]


class _Source(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.POINTER(_abi.OpInfo)),
        ("words", ctypes.c_void_p),
        ("n_words", ctypes.c_size_t),
        ("record", ctypes.c_void_p),
        ("only_torch", ctypes.c_int),
        ("required", ctypes.c_uint32),
        ("results", ctypes.c_uint32),
        ("check", ctypes.c_void_p),
    ]


class _Body(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_void_p),
        ("n_inputs", ctypes.c_size_t),
        ("n_outputs", ctypes.c_size_t),
        ("check", ctypes.c_void_p),
    ]


declare(
    pylib,
    path,
    {
        "qn_numpy_bind": (_abi.STATUS, [ctypes.c_void_p]),
        "qn_torch_bind": (_abi.STATUS, [ctypes.c_void_p]),
        "qn_fast_body_create": (_abi.STATUS, [ctypes.c_void_p, *[ctypes.POINTER(ctypes.py_object)] * 2]),
        "qn_torch_state_create": (_abi.STATUS, [ctypes.POINTER(ctypes.py_object)]),
        "qn_fast_plan_create": (_abi.STATUS, [ctypes.py_object, ctypes.py_object, ctypes.POINTER(ctypes.py_object)]),
        "qn_fast_create": (_abi.STATUS, [ctypes.c_void_p, ctypes.POINTER(ctypes.py_object)]),
    },
)
compare(
    lib,
    path,
    {
        "qn_numpy_objects": _NumPy,
        "qn_torch_objects": _Torch,
        "qn_fast_word": _Word,
        "qn_fast_source": _Source,
        "qn_fast_body": _Body,
    },
)
_held: list[object] = []  # all that the library knows by its address


def _hold(one: object) -> int:
    """The address of an object, which lives from now on."""
    _held.append(one)
    return id(one)


def _dtypes(named: Iterable[tuple[str, object]]) -> ctypes.Array:
    """By the library's name."""
    made = (_Dtype * _MOST_DTYPES)()
    for entry, (name, dtype) in zip(made, named):
        entry.object, entry.code = _hold(dtype), DTYPES[name]
    return made


# ---- NumPy ----
def _bind_numpy(numpy, ml_dtypes) -> None:
    probe = numpy.zeros((2, 6), numpy.float32)[:, ::2]
    types = [(name, getattr(numpy, f"{word}_" if word == "bool" else word, None)) for name, word in _STORAGE.items()]
    if ml_dtypes is not None:
        types += [(name, getattr(ml_dtypes, _STORAGE[name])) for name in ("bf16", "f8e4m3")]
    types = [(name, kind) for name, kind in types if kind is not None]
    named = [(name, numpy.dtype(kind)) for name, kind in types] + types + [("bool", bool)]
    objects = _NumPy(
        object.__basicsize__,
        *map(_hold, (numpy.ndarray, numpy.empty, numpy.empty_like, _threads.pool, probe)),
        probe.__array_interface__["data"][0],
        _dtypes(named),
    )
    pylib.qn_numpy_bind(ctypes.addressof(_keep(objects)))


def _keep(objects: ctypes.Structure) -> ctypes.Structure:
    _held.append(objects)
    return objects


# ---- PyTorch ----
class _Table(ctypes.Structure):
    """DLPackExchangeAPI of DLPack 1."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in ("before", "allocate", "managed_from", "managed_to", "tensor_from")),
    ]


def table_of(kind: type) -> int | None:
    """The address of DLPack's table for C of a type of tensors, where there is one of a version that is known."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if type(capsule).__name__ != "PyCapsule":
        return None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    try:
        address = get(capsule, b"dlpack_exchange_api")
    except ValueError:  # a capsule of another name
        return None
    return address if _Table.from_address(address).major == 1 else None


def reader_of(kind: type) -> int | None:
    """The address of the function that fills a DLTensor from one of torch's tensors, where there is one."""
    address = table_of(kind)
    return None if address is None else _Table.from_address(address).tensor_from


def _bind_torch(torch) -> None:
    inner, forward_ad = torch._C, torch.autograd.forward_ad
    if torch.version.hip is not None or not isinstance(forward_ad._current_level, int):
        raise NotImplementedError  # AMD's devices; forward-mode tangents that could not be told
    guards = (
        inner._len_torch_dispatch_stack,
        inner._len_torch_function_stack,
        inner._are_functorch_transforms_active,
        inner._is_tracing,
    )
    named = [(name, getattr(torch, word)) for name, word in _STORAGE.items() if hasattr(torch, word)]
    named.append(("bool", bool))
    objects = _Torch(
        _hold(torch.Tensor),
        _hold(torch.nn.Parameter),
        _hold(torch.Size),
        table_of(torch.Tensor),
        (ctypes.c_void_p * 8)(*map(_hold, guards)),
        *map(
            _hold,
            (
                forward_ad,
                torch.is_grad_enabled,
                lambda: _threads.pool_for("torch"),
                torch.Tensor.is_neg,
                counter(torch),
                torch.empty_like,
                getattr(inner, "_cuda_getCurrentRawStream", _streams.of_torch),
            ),
        ),
        _dtypes(named),
    )
    pylib.qn_torch_bind(ctypes.addressof(_keep(objects)))


# ---- which are there ----
_MODULES = ("numpy", "ml_dtypes", "torch")
_seen: tuple = (None, None, None)


def bind() -> None:
    """To be called on the longer way: from now on frameworks that have been loaded meanwhile are known. One that is
    none, or is another than those that are known, has no fast calls."""
    global _seen
    now = tuple(sys.modules.get(name) for name in _MODULES)
    if now == _seen:
        return
    before, _seen = _seen, now
    numpy, ml_dtypes, torch = now
    try:
        if numpy is not None and now[:2] != before[:2]:
            _bind_numpy(numpy, ml_dtypes)
        if torch is not None and torch is not before[2]:
            _bind_torch(torch)
    except (AttributeError, TypeError, NotImplementedError, RuntimeError):
        _seen = before  # half imported, or too new: asked again, and unknown until then


def _none(*arguments: object) -> object:
    return NotImplemented


def _made(create: Callable, *source: object) -> Callable:
    """A function that the library makes; in an interpreter that lacks what it works with, one that leaves all alone."""
    function = ctypes.py_object()
    try:
        create(*source, ctypes.byref(function))
    except ValueError:
        return _none
    return function.value


def create(
    op: Op,
    names: Sequence[str],
    results: Sequence[str] = (),
    only_torch: bool = False,
    record: Callable | None = None,
) -> Callable:
    """The fast call of an op: of an array or None a role, a value for each of these keywords of its signature, and a
    stream. results: the roles whose arrays are made where None is given, and which it returns. record: what is called
    instead, with all arguments, where autograd is to record the call; None: such a call is left alone."""
    words = {word.name: word for word in keywords(op) if word.params}
    index = {name: place for place, name in enumerate(op.params)}
    made = (_Word * max(len(names), 1))()
    for entry, word in zip(made, map(words.__getitem__, names)):
        entry.first, entry.n, entry.none = index[word.params[0].name], len(word.params), _hold(word.default)
    bits = sum(1 << role.index for role in op.roles if role.name in results)
    required = sum(1 << role.index for role in op.roles if not role.optional) & ~bits
    source = _Source(op.info, ctypes.addressof(made), len(names), None, only_torch, required, bits, _hold(check))
    if record is not None:
        source.record = _hold(record)
    return _made(pylib.qn_fast_create, ctypes.addressof(source))


PLAIN, RECORDS = 0, 1  # of what torch_state says; NotImplemented and all else: PyTorch is to decide
torch_state = _made(pylib.qn_torch_state_create)


def body(kernel: ctypes.c_void_p, n_inputs: int, n_outputs: int) -> tuple[Callable, Callable]:
    """(call, learn) of a kernel from its body (quern/objects.h), which must live as long as they are called."""
    call, learn = ctypes.py_object(), ctypes.py_object()
    source = _Body(kernel.value, n_inputs, n_outputs, _hold(check))
    try:
        pylib.qn_fast_body_create(ctypes.addressof(source), ctypes.byref(call), ctypes.byref(learn))
    except ValueError:  # too many arrays, or another interpreter
        return _none, _none
    return call.value, learn.value


def plan(
    arguments: tuple,
    values: tuple,
    users: Iterable[int],
    finish: Callable | None,
    run: Callable | None = None,
    graphs: tuple = (None,) * 5,
    slots: Iterable[tuple] = (),
    addresses: Iterable[int] = (),
    constants: Iterable[int] = (),
    versions: Iterable[int] = (),
    modules: Iterable[object] = (),
    training: Iterable[bool] = (),
    switches: Iterable[Callable] = (),
) -> Callable | None:
    """A function of arguments for calls like that of these arguments; None: they have none. quern/objects.h says what
    the parts are. graphs: its parts 11 to 15. The answers of `switches` are those of now."""
    entries = tuple(entry for slot in slots for entry in slot)
    module = entries, tuple(addresses), tuple(constants), tuple(versions), tuple(modules), tuple(training)
    asked = tuple(switches), tuple(switch() for switch in switches)
    parts = (values, *module, *asked, tuple(users), run, *graphs, finish)
    bind()
    function = ctypes.py_object()
    try:
        pylib.qn_fast_plan_create(parts, arguments, ctypes.byref(function))
    except (ValueError, RuntimeError):
        return None
    return functools.partial(function.value, parts)
