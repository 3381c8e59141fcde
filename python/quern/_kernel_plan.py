# SPDX-License-Identifier: Apache-2.0
"""How a kernel is called with arguments of one kind: the structs of a call (a frame), and the outputs that it makes."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import byref
from typing import NamedTuple

from . import _arrays, _threads
from . import _kernel_abi as abi
from . import _kernel_values as values
from ._abi import Device, Exec, Tensor, sized
from ._versions import count_writes
from ._workspace import Workspace

_address = ctypes.addressof
_begin = ctypes.c_char.from_buffer


class Wanted(NamedTuple):
    """One output as the caller wants it: its type and shape, and whose memory it is: the caller's (`given`), that of
    the input with the number `stored_in`, or fresh."""

    code: int
    shape: tuple[int, ...]
    strides: Sequence[int] | None = None
    given: bool = False
    stored_in: int = -1


class Launch(NamedTuple):
    """What is neither an input nor an output: sizes, templates and how it is to run."""

    grid: tuple[int, int, int]
    group: tuple[int, int, int]
    templates: list[tuple[str, object]]
    init: list[object] | None
    shared_bytes: int = 0
    limit_ns: int = 0
    check: bool = False
    seed: int = 0
    ignore: int = 0


def tensors(keep: list[object], described: Sequence[tuple]) -> ctypes.Array:
    """Of (storage type, shape, strides, device) each, without memory; `keep` must live as long."""
    made = (Tensor * max(len(described), 1))()
    for tensor, (code, shape, strides, device) in zip(made, described):
        tensor.dtype, tensor.ndim, tensor.device = code, len(shape), Device(*device)
        tensor.shape = _extents(keep, shape)
        tensor.strides = None if strides is None else _extents(keep, strides)
    keep.append(made)
    return made


def _extents(keep: list[object], extents: Sequence[int]) -> int:
    made = (ctypes.c_int64 * max(len(extents), 1))(*extents)
    keep.append(made)
    return _address(made)


def put_templates(call: abi.KernelCall, what: str, pairs: Sequence[tuple[str, object]]) -> None:
    """Pairs of name and value as the call's templates."""
    made = (abi.Template * max(len(pairs), 1))()
    for template, (name, value) in zip(made, pairs):
        template.name = name.encode()
        values.put_value(template.value, f"{what}: the template value {name}", value)
    call.n_templates, call.templates = len(pairs), made


class Frame:
    """The structs of one call, in memory of their own."""

    __slots__ = ("call", "call_ref", "cells", "execution", "execution_ref", "inputs", "keep", "outputs")

    def __init__(self, plan: Plan) -> None:
        self.keep: list[object] = []
        self.execution = sized(Exec)
        self.execution.device = Device(*plan.device)
        # Of inputs that are numbers of Python's.
        self.cells = [None if seen.raw is None else ctypes.create_string_buffer(seen.raw, 16) for seen in plan.seen]
        made_in = tensors(self.keep, [(s.code, s.shape, s.strides, s.device) for s in plan.seen])
        made_out = tensors(self.keep, [(w.code, w.shape, w.strides, plan.device) for w in plan.wanted])
        self.inputs, self.outputs = list(made_in), list(made_out)
        for tensor, cell in zip(self.inputs, self.cells):
            if cell is not None:
                tensor.data = _address(cell)
        self.call = sized(abi.KernelCall)
        self.call.inputs, self.call.outputs = made_in, made_out
        self._fill(plan)
        self.call_ref, self.execution_ref = byref(self.call), byref(self.execution)

    def _fill(self, plan: Plan) -> None:
        call, launch = self.call, plan.launch
        put_templates(call, plan.name, launch.templates)
        if launch.init is not None:
            init = (abi.Value * len(launch.init))()
            for value, given in zip(init, launch.init):
                values.put_value(value, f"{plan.name}: an init_value", given)
            call.init = init
            self.keep.append(init)
        if any(wanted.stored_in >= 0 for wanted in plan.wanted):
            stored = (ctypes.c_int * len(plan.wanted))(*(wanted.stored_in for wanted in plan.wanted))
            call.stored_in = stored
            self.keep.append(stored)
        call.grid, call.group = launch.grid, launch.group
        call.shared_bytes, call.limit_ns = launch.shared_bytes, launch.limit_ns
        call.check, call.seed, call.ignore = launch.check, launch.seed, launch.ignore


class Plan:
    """One kind of call. seen: the inputs of the first such call (their addresses do not matter here)."""

    def __init__(self, name: str, seen: Sequence, wanted: Sequence[Wanted], launch: Launch, device, framework) -> None:
        self.name, self.seen, self.wanted, self.launch = name, seen, wanted, launch
        self.device: tuple[int, int] = device
        self.framework: str = framework
        self.is_cuda = device[0] == _arrays.CUDA
        self.workspace_bytes: int | None = None  # not known before the first call
        self.makers = [self._maker(want) for want in wanted]
        self.stored_in = [want.stored_in for want in wanted]
        self.writes_tensors = framework == "torch" and None in self.makers  # autograd must know that they have changed
        # A group of threads is one thread's work: a single one cannot be split over a pool.
        self.alone = all(grid <= max(group, 1) for grid, group in zip(launch.grid, launch.group))

    def fill(self, frame: Frame, addresses, inputs, to_addresses, out) -> list:
        """Puts this call's arrays into the frame; returns the outputs, in order."""
        for tensor, cell, address in zip(frame.inputs, frame.cells, addresses):
            if cell is None:
                tensor.data = address
        results = []
        for k, (tensor, maker) in enumerate(zip(frame.outputs, self.makers)):
            if maker is not None:
                made, tensor.data = maker()
            elif self.stored_in[k] >= 0:
                made, tensor.data = inputs[self.stored_in[k]], addresses[self.stored_in[k]]
            else:
                made, tensor.data = out[k], to_addresses[k]
            results.append(made)
        return results

    def count_writes(self, results: list) -> None:
        count_writes(result for maker, result in zip(self.makers, results) if maker is None)

    # ---- outputs ----
    def _maker(self, want: Wanted) -> Callable[[], tuple[object, int]] | None:
        """What makes one fresh output: (array, address). None where its memory is the caller's."""
        if want.given or want.stored_in >= 0:
            return None
        return {"torch": _torch_maker, "cupy": _cupy_maker, "numpy": _numpy_maker}.get(self.framework, _refuse_maker)(
            self, want
        )

    def lend(self, frame: Frame, kernel: ctypes.c_void_p) -> Workspace | None:
        """Memory for copies of strided inputs on a GPU; on the processor the library has its own."""
        if self.workspace_bytes is None:
            n_bytes = ctypes.c_size_t()
            if self.is_cuda:
                abi.lib.qn_kernel_workspace_bytes(kernel, frame.call_ref, byref(n_bytes))
            self.workspace_bytes = n_bytes.value
        if not self.workspace_bytes:
            return None
        framework = self.framework if self.framework in ("torch", "cupy") else None
        made = Workspace(self.workspace_bytes, self.device, frame.execution.stream or 0, framework)
        frame.execution.workspace, frame.execution.workspace_bytes = made.address, self.workspace_bytes
        return made


def pool_for(plan: Plan) -> _threads.Pool | None:
    """The threads of a call on the processor: as many as PyTorch uses, for its tensors; hold it during the call."""
    if plan.alone:
        return None
    return _threads.pool_for(plan.framework)


def numpy_dtype(code: int):
    import numpy

    name = values.name_of(code)
    if name != "bfloat16":
        return numpy.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError("NumPy has no bfloat16 of its own; ml_dtypes has it: pip install ml_dtypes") from None
    return numpy.dtype(ml_dtypes.bfloat16)


def _numpy_maker(plan: Plan, want: Wanted) -> Callable[[], tuple[object, int]]:
    import numpy

    empty, dtype, shape = numpy.empty, numpy_dtype(want.code), want.shape
    if dtype.isbuiltin != 1 or 0 in shape:  # the buffer protocol has no word for it

        def make():
            made = empty(shape, dtype)
            return made, made.__array_interface__["data"][0]

    else:

        def make():
            made = empty(shape, dtype)
            return made, _address(_begin(made))

    return make


def _torch_maker(plan: Plan, want: Wanted) -> Callable[[], tuple[object, int]]:
    torch = sys.modules["torch"]
    dtype = getattr(torch, values.name_of(want.code), None)
    if dtype is None:
        raise TypeError(f"{plan.name}: an output is {values.name_of(want.code)}, which this PyTorch has not")
    device = torch.device("cuda", plan.device[1]) if plan.is_cuda else torch.device("cpu")
    empty, shape = torch.empty, want.shape

    def make():
        made = empty(shape, dtype=dtype, device=device)
        return made, made.data_ptr()

    return make


def _cupy_maker(plan: Plan, want: Wanted) -> Callable[[], tuple[object, int]]:
    cupy = sys.modules["cupy"]
    dtype, index, shape = numpy_dtype(want.code), plan.device[1], want.shape

    def make():
        with cupy.cuda.Device(index):
            made = cupy.empty(shape, dtype)
        return made, made.data.ptr

    return make


def _refuse_maker(plan: Plan, want: Wanted):
    raise TypeError(
        f"{plan.name}: the inputs are on a GPU and neither PyTorch's nor CuPy's, so quern cannot make outputs like "
        "them: give the arrays to write to as out="
    )
