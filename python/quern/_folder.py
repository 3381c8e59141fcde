# SPDX-License-Identifier: Apache-2.0
"""A kernel's folder as a function: the library reads kernel.json and the body beside it (quern/kernel.h), and makes of
inputs' types and shapes the call that is launched."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import POINTER, byref
from typing import NamedTuple

from . import _arrays, _streams
from . import _kernel_abi as abi
from . import _kernel_read as reading
from . import _kernel_values as values
from ._abi import sized
from ._kernel import Kernel
from ._kernel_plan import numpy_dtype, put_templates, tensors
from ._library import DTYPES

_MOST_CALLS = 256  # kinds of calls that are remembered
_HEALTH = "dbg"
_ERROR, _SUCCESS = 13, 15  # qn_health
_PLAIN = {DTYPES[name]: letter for name, letter in zip(("bool", "i32", "f32", "i64", "u64"), "?ifqQ")}


class Asked(NamedTuple):
    """A launch that follows from inputs: what Kernel's call takes besides them, and those inputs that the file has."""

    template: list[tuple[str, object]]
    grid: tuple
    threadgroup: tuple | None
    output_shapes: list[tuple]
    output_dtypes: list[str]
    init_value: list | None
    in_place: dict[str, str] | None
    shared_memory: int
    ignore: list[str]
    scalars: dict[int, object]


class FolderKernel:
    """A kernel's folder as a function of arrays: kernel(x, y) -> out, the outputs as a tuple where there are several.

    Positional arguments are the inputs that have no value in the file's "scalars"; those and template values may be
    given by name, as may threadgroup, out, stream, check, seed, limit and verbose (see quern.Kernel). `kernel` is the
    quern.Kernel behind it. An output `dbg` is the health buffer: it is read back, and where it does not say success,
    `fallback` is called with the inputs, or quern.KernelError raised."""

    def __init__(self, folder: str | os.PathLike, fallback: Callable | None = None) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self.fallback = fallback
        self._handle = POINTER(abi.KernelFolder)()
        abi.lib.qn_kernel_folder_create(byref(self._handle), os.fsencode(self.folder))
        declared = self._handle.contents
        source = declared.source
        self.name: str = source.name.decode()
        self.inputs = _texts(source.inputs, source.n_inputs)
        self.outputs = _texts(source.outputs, source.n_outputs)
        self.scalars = _chosen(self.inputs, declared.scalars)
        self.arguments = [name for name in self.inputs if name not in self.scalars]
        self.returned = [name for name in self.outputs if name != _HEALTH] or [_HEALTH]
        self._templates = _texts(declared.templates, declared.n_templates)
        self._words = [f"{self.name}: {name}" for name in self.inputs]
        try:
            self.kernel = Kernel(_source_of(source, self.inputs, self.outputs))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{os.path.join(self.folder, 'kernel.json')}: {error}") from None
        words = {name: self.kernel.contracts[name].partition(" [")[0].split("|") for name in self.scalars}
        self._types = {name: [DTYPES[word] for word in types if word in DTYPES] for name, types in words.items()}
        self.__doc__ = f"{declared.doc.decode()}\n\n{self.kernel.__doc__}".strip() + "\n"
        self.__name__ = self.name
        self._calls: dict[object, Asked] = {}

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and not sys.is_finalizing():
            abi.lib.qn_kernel_folder_destroy(byref(handle))

    def __repr__(self) -> str:
        return f"<quern kernel {self.name}({', '.join(self.arguments)}) of {self.folder}>"

    def __reduce__(self):
        return FolderKernel, (self.folder, self.fallback)

    # ---- from inputs to a launch ----
    @contextlib.contextmanager
    def call_of(self, described: Sequence[tuple], given: Mapping[str, object], threadgroup=None) -> Iterator:
        """The library's call for inputs of these shapes and storage types, 0 where the file has the value. given:
        values of templates that replace the file's."""
        keep: list[object] = []
        call, made = sized(abi.KernelCall), POINTER(abi.KernelCall)()
        call.inputs = tensors(keep, [(code, shape, None, _arrays.CPU_DEVICE) for shape, code in described])
        put_templates(call, self.name, list(given.items()))
        if threadgroup is not None:
            call.group = values.three(f"{self.name}: threadgroup", threadgroup, 32)
        abi.lib.qn_kernel_folder_call(self._handle, byref(call), byref(made))
        try:
            yield made.contents
        finally:
            abi.lib.qn_kernel_call_release(byref(made))

    def _asked_of(self, call: abi.KernelCall, scalars: Sequence[int]) -> Asked:
        outputs, group = call.outputs[: len(self.outputs)], tuple(call.group)
        stored = call.stored_in[: len(outputs)] if call.stored_in else []
        return Asked(
            [(one.name.decode(), values.value_of(one.value)) for one in call.templates[: call.n_templates]],
            tuple(call.grid),
            group if any(group) else None,
            [tuple((ctypes.c_int64 * one.ndim).from_address(one.shape)) for one in outputs],
            [values.name_of(one.dtype) for one in outputs],
            [values.value_of(one) for one in call.init[: len(outputs)]] if call.init else None,
            {name: self.inputs[k] for name, k in zip(self.outputs, stored) if k >= 0} or None,
            call.shared_bytes,
            [abi.lib.qn_finding_kind_name(k).decode() for k in range(32) if call.ignore >> k & 1],
            {k: _scalar(call.inputs[k]) for k in scalars},
        )

    # ---- the call ----
    def __call__(self, *arrays, threadgroup=None, out=None, fallback: Callable | None = None, **given):
        inputs = self._inputs(arrays, given)
        templates = {name: given.pop(name) for name in [*given] if name in self._templates}
        asked = self._asked(inputs, templates, threadgroup)
        for k, value in asked.scalars.items():
            inputs[k] = value
        if out is not None:
            given["out"] = self._out(out)
        outputs = self.kernel(
            inputs=inputs,
            template=asked.template,
            grid=asked.grid,
            threadgroup=asked.threadgroup,
            output_shapes=asked.output_shapes,
            output_dtypes=asked.output_dtypes,
            init_value=asked.init_value,
            in_place=asked.in_place,
            shared_memory=asked.shared_memory,
            **{"ignore": asked.ignore, **given},
        )
        by_name = dict(zip(self.outputs, outputs))
        if _HEALTH in by_name:
            try:
                self._healthy(by_name[_HEALTH])
            except RuntimeError:
                fallback = fallback or self.fallback
                if fallback is None:
                    raise
                return fallback(*arrays)
        returned = tuple(by_name[name] for name in self.returned)
        return returned[0] if len(returned) == 1 else returned

    def _inputs(self, arrays: tuple, given: dict) -> list:
        n = len(self.arguments)
        if len(arrays) != n:
            named = [name for name in ("inputs", *self.arguments) if name in given]
            raise TypeError(
                f"{self.name} takes {n} array{'s' * (n != 1)} ({', '.join(self.arguments)}), {len(arrays)} "
                f"{'are' if len(arrays) != 1 else 'is'} given"
                + (f" and {', '.join(named)} by name: give arrays by place" if named else "")
            )
        if not self.scalars:
            return list(arrays)
        by_name = dict(zip(self.arguments, arrays))
        for name in self.scalars:
            if name in given:
                by_name[name] = self._number(name, given.pop(name))
        return [by_name.get(name) for name in self.inputs]

    def _number(self, name: str, value: object) -> object:
        """A number of Python's in the type that the contract has for it, where its own is none of those."""
        types = self._types[name]
        if not isinstance(value, (bool, int, float)) or not types:
            return value
        if values.scalar(name, float(value) if isinstance(value, float) else value)[0] in types:
            return value
        import numpy

        return numpy.array(value, numpy_dtype(types[0]))

    def _out(self, out) -> list:
        given = [out] if len(self.returned) == 1 and not isinstance(out, (list, tuple)) else list(out)
        if len(given) != len(self.returned):
            raise ValueError(f"{self.name}: out has {len(given)} of {len(self.returned)}: {', '.join(self.returned)}")
        by_name = dict(zip(self.returned, given))
        return [by_name.get(name) for name in self.outputs]

    def _asked(self, inputs: Sequence, templates: Mapping[str, object], threadgroup) -> Asked:
        described = [describe(word, value) for word, value in zip(self._words, inputs)]
        key = (
            tuple(described),
            tuple([(name, type(value), value) for name, value in templates.items()]),
            None if threadgroup is None else tuple(threadgroup),
        )
        made = self._calls.get(key)
        if made is None:
            with self.call_of(described, templates, threadgroup) as call:
                made = self._asked_of(call, [k for k, (_, code) in enumerate(described) if not code])
            if len(self._calls) >= _MOST_CALLS:
                self._calls.clear()
            self._calls[key] = made
        return made

    def _healthy(self, buffer) -> None:
        """Reads the health buffers back, of which there may be one a matrix of a batch; raises KernelError with what
        the first one says that does not say success."""
        rows = buffer.reshape(-1, abi.HEALTH_COUNT)
        bad = (rows[:, _ERROR] != 0) | (rows[:, _SUCCESS] != 1)  # a NaN is a fault too
        if not bool(bad.any()):
            return
        where = int(bad.nonzero()[0].reshape(-1)[0])  # of NumPy and CuPy a tuple of places, of torch places in rows
        read = (ctypes.c_float * abi.HEALTH_COUNT)(*rows[where].tolist())
        name = self.name if len(rows) == 1 else f"{self.name}, number {where} of {len(rows)}"
        abi.lib.qn_health_status(name.encode(), read)


def _texts(texts, n: int) -> list[str]:
    return [texts[k].decode() for k in range(n)]


def _chosen(names: Sequence[str], bits: int) -> list[str]:
    return [name for k, name in enumerate(names) if bits >> k & 1]


def _source_of(source: abi.KernelSource, inputs: list[str], outputs: list[str]) -> dict:
    """As quern.metal_kernel makes it of its arguments."""
    return dict(
        name=source.name.decode(), input_names=inputs, output_names=outputs, dialect=source.dialect,
        body=source.body.decode(), file=os.fsdecode(source.file), header=(source.header or b"").decode(),
        strided=_chosen(inputs, source.strided), atomic_outputs=_chosen(outputs, source.atomic),
        math=[*abi.MATH][source.math], contracts=dict(zip(inputs, _texts(source.contracts, len(inputs)))),
        ensure_row_contiguous=True, shared_memory=0, cluster=source.cluster,
    )  # fmt: skip


def _scalar(tensor) -> object:
    """A plain value as a number, where Python's numbers have its type, else as an array of no dimensions."""
    raw = ctypes.string_at(tensor.data, values.bytes_of(tensor.dtype))
    if tensor.dtype in _PLAIN:
        (number,) = struct.unpack(_PLAIN[tensor.dtype], raw)
        if values.scalar("", number) == (tensor.dtype, raw):
            return number
    import numpy

    return numpy.frombuffer(raw, numpy_dtype(tensor.dtype)).reshape(())


def describe(name: str, value: object) -> tuple[tuple, int]:
    """(shape, code) of an input of any kind; 0 of None, the file's value."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        code = _codes.get(dtype)
        if code is None:
            code = values.code_of(name, dtype)
            _codes[dtype] = code
        return tuple(shape), code
    if value is None:
        return (), 0
    if isinstance(value, (bool, int)) or type(value) is float:
        return (), values.scalar(name, value)[0]
    seen = reading.look(name, value, _streams.Order(), False)
    if isinstance(seen, reading.Seen):
        return tuple(seen.shape), seen.code
    view = seen.view(_streams.Order())
    return tuple(view.shape), values.code_of(name, view.dtype)


_codes: dict[object, int] = {}


def _shipped() -> pathlib.Path:
    """Where the kernels that ship are: in the package, or in the source tree about it."""
    package = pathlib.Path(__file__).resolve().parent
    return package / "kernels" if (package / "kernels").is_dir() else package.parent.parent / "kernels"


def _folder_of(folder: str | os.PathLike) -> str:
    """The folder itself where it has a kernel.json, else that of the shipped kernel of this name."""
    text = os.fspath(folder)
    if isinstance(text, bytes) or os.path.exists(os.path.join(text, "kernel.json")):
        return os.fsdecode(text)
    names = sorted(path.parent.name for path in _shipped().glob("*/kernel.json"))
    if text in names:
        return str(_shipped() / text)
    if os.path.isdir(text) or os.path.dirname(text):
        raise FileNotFoundError(f"{text} has no kernel.json")
    raise FileNotFoundError(f"{text!r} is no folder with a kernel.json, and no kernel that ships: {', '.join(names)}")


def load_kernel(folder: str | os.PathLike, fallback: Callable | None = None) -> FolderKernel:
    """The kernel of a folder with a kernel.json, as `quern kernel new` makes one, as a function of arrays; or one that
    ships, by its name: load_kernel("qr"). fallback: what is called with the inputs where the kernel's health buffer
    does not say success."""
    return FolderKernel(_folder_of(folder), fallback)
