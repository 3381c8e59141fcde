# SPDX-License-Identifier: Apache-2.0
"""Are a list's tensors still what they were when a plan was made for them, and where are they now? Asked at every step
of every tensor, this is most of what a step costs the host. Where PyTorch has DLPack's table for C (from 2.10 or so on)
the library asks all tensors of a role in one call; else Python does, at several times the price."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor
from torch.utils.dlpack import to_dlpack

from .. import _abi, _library
from .._fast import reader_of
from .._tensors import Tensors

CHANGED, SAME, MOVED = 0, 1, 2  # qn_follow

data_ptr, stride, is_contiguous = Tensor.data_ptr, Tensor.stride, Tensor.is_contiguous
nbytes, dtype_of = attrgetter("nbytes"), attrgetter("dtype")


class Watch:
    """Over the tensors that `array` describes to the library. Any version of PyTorch."""

    def __init__(self, array: Tensors, tensors: Sequence[Tensor]) -> None:
        self._array = array
        self._addresses = list(map(data_ptr, tensors))
        self._bytes = list(map(nbytes, tensors))
        self._strides = None if all(map(is_contiguous, tensors)) else list(map(stride, tensors))
        # Four bytes an element are f32; two may be either of two types.
        self._dtypes = None if all(t.dtype is torch.float32 for t in tensors) else list(map(dtype_of, tensors))

    def follow(self, tensors: list[Tensor]) -> int:
        """CHANGED: not of the kind that they were. Else SAME, or MOVED, and the array says where they are. Raises
        AttributeError, TypeError or RuntimeError for what is no dense tensor."""
        if list(map(nbytes, tensors)) != self._bytes:
            return CHANGED
        if self._strides is None:
            if not all(map(is_contiguous, tensors)):
                return CHANGED
        elif list(map(stride, tensors)) != self._strides:
            return CHANGED
        if self._dtypes is not None and list(map(dtype_of, tensors)) != self._dtypes:
            return CHANGED
        return self.move(list(map(data_ptr, tensors)))

    def move(self, addresses: list[int]) -> int:
        """The tensors are there now: SAME or MOVED."""
        if addresses == self._addresses:
            return SAME
        self._addresses = addresses
        self._array.move(addresses)
        return MOVED


def _python(name: str) -> int | None:
    """The address of one of Python's own functions."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value


_read, _attribute, _item = reader_of(Tensor), _python("PyObject_GetAttr"), _python("PyObject_GetItem")
_calls = ctypes.byref(_abi.ObjectCalls(_read, _python("PyList_GetItem"), _python("Py_DecRef")))
# Through PyDLL the interpreter's lock is held, and a Python exception that the call leaves is raised.
_follow = _library.pylib.qn_objects_follow
_follow.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_same = _library.pylib.qn_objects_same
_same.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.py_object, ctypes.py_object]


def are_same(one: list, other: list) -> bool:
    """Do two lists hold the very same objects? None of them is touched: after a backward pass each touch is a miss of
    the caches."""
    return len(one) == len(other) and bool(_same(_calls, len(one), one, other))


class TableWatch:
    """The same by DLPack's table. Not for complex tensors, which the library is told to be pairs of reals."""

    def __init__(self, array: Tensors, tensors: Sequence[Tensor]) -> None:
        self._array = array
        self._n = len(tensors)
        self._part, self._found = _abi.ObjectPart(tensors=array.address), ctypes.c_int()

    def follow(self, tensors: list[Tensor]) -> int:
        """See Watch; a gradient that is None is no dense tensor."""
        self._part.list = tensors
        try:
            _follow(_calls, self._n, ctypes.byref(self._part), 1, ctypes.byref(self._found))
        finally:
            self._part.list = ()  # gradients are not to be kept from going; None would not drop the reference
        return self._found.value

    def move(self, addresses: list[int]) -> int:
        """See Watch; always MOVED."""
        self._array.move(addresses)
        return MOVED


def _second_references(tensors: Sequence[Tensor]) -> list[object]:
    """Where C++ has but one reference to a tensor, each use of its Python object makes another, and PyTorch then counts
    on the object too, under the interpreter's lock: reading and counting a write take twice as long. These are others.
    None where torch.utils.swap_tensors, which refuses tensors that have them, is what moves modules."""
    if torch.__future__.get_swap_module_params_on_conversion():
        return []
    try:
        return list(map(to_dlpack, tensors))
    except (BufferError, RuntimeError, TypeError):
        return []


class ListWatch:
    """All roles of a list in one call, which touches each parameter once: the parameters, their gradients, and items of
    their states. `arrays`: by role; `entries`: of the roles that are in the states, the keys."""

    def __init__(self, arrays: dict[str, Tensors], tensors: list[Tensor], states: list[dict], entries: dict[str, str]):
        self._n = len(tensors)
        part = _abi.ObjectPart
        parts = [part(tensors, None, None, arrays["param"].address)]
        parts += [part(tensors, _attribute, "grad", arrays["grad"].address)]
        parts += [part(states, _item, key, arrays[role].address) for role, key in entries.items()]
        self._parts = (_abi.ObjectPart * len(parts))(*parts)
        self._found = (ctypes.c_int * len(parts))()
        self._others = _second_references([*tensors, *(state[key] for state in states for key in entries.values())])

    def follow(self) -> tuple[bool, int]:
        """(are parameters and states what and where they were, what the gradients are). Raises what Watch raises, and
        KeyError for a state that lacks an item."""
        _follow(_calls, self._n, self._parts, len(self._parts), self._found)
        param, grad, *held = self._found
        return param == SAME and all(found == SAME for found in held), grad


def has_table(tensors: Sequence[Tensor]) -> bool:
    """Can these tensors be watched by DLPack's table?"""
    return _read is not None and not any(map(torch.is_complex, tensors))


def watch(array: Tensors, tensors: Sequence[Tensor]) -> Watch | TableWatch:
    """The quicker one that can watch these tensors."""
    return (TableWatch if has_table(tensors) else Watch)(array, tensors)
