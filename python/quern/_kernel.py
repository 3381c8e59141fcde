# SPDX-License-Identifier: Apache-2.0
"""Kernels from a body, with the call shape of MLX's metal_kernel and cuda_kernel: made here from names and text, called
on arrays of NumPy, PyTorch and others. What is right and wrong about a call is the library's to say; here it is put
into the library's words."""

from __future__ import annotations

import os
import sys
import threading
from collections import namedtuple
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_void_p, sizeof

from . import _arrays, _fast, _streams
from . import _kernel_abi as abi
from ._abi import sized
from ._kernel_given import Given as _Given
from ._kernel_given import Prepared as _Prepared
from ._kernel_given import take_text

TYPE_CHECKING = False  # not typing's: what `import quern` loads does without it
if TYPE_CHECKING:
    from typing_extensions import Never, TypeGuard

_SUFFIXES = (".metal", ".h", ".hpp", ".cu", ".cuh", ".inc")
_lib = abi.lib

KernelInfo = namedtuple(
    "KernelInfo", "registers shared_bytes local_bytes most_threads threadgroup groups_at_once fibers"
)
KernelInfo.__doc__ = """What the compiler made of a launch: registers and spilled bytes of a thread, static shared
memory of a group, the largest group of this kernel on this device, the group that the launch takes, how many of them a
multiprocessor holds at once, and whether its threads are fibers on the processor. Registers are 0 there."""


def _is_path(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """A path object is one; so is a str that ends as such files do and has no word of a body in it."""
    if isinstance(source, os.PathLike):
        return True
    return isinstance(source, str) and source.endswith(_SUFFIXES) and not any(mark in source for mark in ";{}\n")


def _read(what: str, source: object) -> tuple[str, str | None]:
    """(text, the file's name or None)."""
    if _is_path(source):
        path = os.fspath(source)
        with open(path, encoding="utf-8") as file:
            return file.read(), path
    if not isinstance(source, str):
        raise TypeError(f"{what} is {_arrays._a(source)}, it must be a str or a path")
    return source, None


def _text(what: str, value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{what} is {_arrays._a(value)}, it must be a str")
    if "\0" in value:
        raise ValueError(f"{what} has a NUL in it")
    return value.encode()


def _names(what: str, names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        raise TypeError(f"{what} is {names!r}, it must be a list of names")
    made = tuple(names)  # type: ignore[arg-type]
    for name in made:
        _text(f"one of {what}", name)
    return made


def _bits(what: str, chosen: object, names: Sequence[str]) -> int:
    """One bit a name: all of them, none, or those that are listed."""
    if isinstance(chosen, bool):
        return (1 << len(names)) - 1 if chosen else 0
    made = 0
    for name in _names(what, chosen):
        if name not in names:
            raise ValueError(f"{what} has {name!r}; there are {', '.join(names)}")
        made |= 1 << names.index(name)
    return made


class Kernel:
    """A kernel from its body, made by quern.metal_kernel or quern.cuda_kernel. Calling it launches it; it may be called
    from many threads at once. `text`, `emit`, `info` and `prepare` take the same arguments as a call."""

    def __init__(self, source: dict) -> None:
        self._source = source  # all that it is made of, the texts of files included
        name = source["name"]
        what = name if isinstance(name, str) else "kernel"
        self.name: str = name
        self.input_names = _names(f"{what}: input_names", source["input_names"])
        self.output_names = _names(f"{what}: output_names", source["output_names"])
        self.body: str = source["body"]
        self.header: str = source["header"]
        self.file: str | None = source["file"]
        self.contracts = self._contracts(what, source["contracts"])
        self._words = [f"{name}: {word}" for word in self.input_names]
        self._shared_memory: int = source["shared_memory"]
        self._lock = threading.Lock()
        self._other: Kernel | None = None  # the same with the other ensure_row_contiguous
        self._handle = c_void_p()
        self._create(what, source)
        self._fast, self._learn = _fast.body(self._handle, len(self.input_names), len(self.output_names))
        self.__doc__ = self._document()

    def _contracts(self, what: str, given: object) -> dict[str, str]:
        if given is None:
            return {}
        names = (*self.input_names, *self.output_names)
        if not hasattr(given, "items"):
            given = dict(zip(names, given))  # type: ignore[call-overload]
        made = {name: text for name, text in given.items() if text is not None}
        for name in made:
            if name not in names:
                raise ValueError(f"{what}: contracts has {name!r}; there are {', '.join(names)}")
        return made

    def _create(self, what: str, given: dict) -> None:
        source = abi.KernelSource(sizeof(abi.KernelSource))
        source.name = _text("name", given["name"])
        source.body, source.header = _text(f"{what}: source", self.body), _text(f"{what}: header", self.header)
        source.file = None if self.file is None else _text(f"{what}: source", self.file)
        source.dialect = given["dialect"]
        if given["math"] not in abi.MATH:
            raise ValueError(f"{what}: math is {given['math']!r}; it may be {', '.join(abi.MATH)}")
        source.math = abi.MATH[given["math"]]
        source.n_inputs, source.n_outputs = len(self.input_names), len(self.output_names)
        source.inputs = (c_char_p * max(len(self.input_names), 1))(*(name.encode() for name in self.input_names))
        source.outputs = (c_char_p * max(len(self.output_names), 1))(*(name.encode() for name in self.output_names))
        strided = _bits(f"{what}: strided", given["strided"], self.input_names)
        if not given["ensure_row_contiguous"]:
            strided = _bits(f"{what}: strided", True, self.input_names)
        source.strided = strided
        source.atomic = _bits(f"{what}: atomic_outputs", given["atomic_outputs"], self.output_names)
        if type(given["cluster"]) is not int or given["cluster"] < 0:
            raise ValueError(f"{what}: cluster is {given['cluster']!r}; it must be a number of threadgroups")
        source.cluster = min(given["cluster"], 2**31)
        if self.contracts:
            texts = [self.contracts.get(name) for name in (*self.input_names, *self.output_names)]
            source.contracts = (c_char_p * len(texts))(
                *(None if text is None else _text(f"{what}: a contract", text) for text in texts)
            )
        _lib.qn_kernel_create(byref(self._handle), byref(source))

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle and not sys.is_finalizing():
            _lib.qn_kernel_destroy(byref(handle))

    def _document(self) -> str:
        def listed(names: Sequence[str]) -> str:
            return "\n".join(f"    {name}  {self.contracts.get(name, '')}".rstrip() for name in names)

        dialect = "Metal" if self._source["dialect"] == abi.METAL else "CUDA"
        return (
            f"{self.name}, a kernel from a body in the words of {dialect}.\n\n"
            f"Inputs:\n{listed(self.input_names)}\n\nOutputs:\n{listed(self.output_names)}\n"
        )

    def __repr__(self) -> str:
        return f"<quern kernel {self.name}({', '.join(self.input_names)}) -> {', '.join(self.output_names)}>"

    def __reduce__(self):
        # By what it is made of, file contents included: another process need not have the file.
        return Kernel, (self._source,)

    def _laid_out(self, ensure_row_contiguous: object) -> Kernel:
        """The kernel that copies strided inputs first, or does not, as a call says; None: this one."""
        if ensure_row_contiguous is None or bool(ensure_row_contiguous) == bool(self._source["ensure_row_contiguous"]):
            return self
        with self._lock:
            if self._other is None:
                self._other = Kernel(dict(self._source, ensure_row_contiguous=bool(ensure_row_contiguous)))
            return self._other

    # ---- the call ----
    def __call__(
        self,
        *arrays: Never,
        inputs: Sequence[object],
        output_shapes: Sequence[Sequence[int]] | None = None,
        output_dtypes: Sequence[object] | None = None,
        grid: Sequence[int],
        threadgroup: Sequence[int] | None = None,
        template: object = None,
        init_value: object = None,
        verbose: bool = False,
        stream: object = None,
        out: Sequence[object] | None = None,
        in_place: dict[str, str] | None = None,
        shared_memory: int | None = None,
        ensure_row_contiguous: bool | None = None,
        check: bool | str = False,
        ignore: str | Sequence[str] = (),
        seed: int = 0,
        limit: float | None = None,
    ) -> list:
        """Run the kernel.

        inputs         arrays and numbers, as many as the kernel has input names
        output_shapes  one shape per output
        output_dtypes  one storage type per output
        grid           number of threads along x, y, z
        threadgroup    threads of a group; None or (0, 0, 0): chosen for this kernel and device
        template       pairs of name and value: a storage type, a bool or an int
        init_value     first value of the outputs: a number, or one per output; None: uninitialised
        verbose        print the generated source
        stream         a CUDA stream; None: the current one of the inputs' framework. A stream or device of MLX's
                       (mx.gpu) is ignored
        out            arrays to write, one per output (None: a new one); they define shapes and types
        in_place       outputs stored in the memory of an input: {"out": "inp"}
        shared_memory  bytes of `extern __shared__` memory per group (CUDA)
        ensure_row_contiguous  as when the kernel was made, for this call; None: as it was made
        check          run on the CPU and check each access. True: findings raise a quern.KernelError with `findings`
                       and `outputs`; "warn": they give a quern.FindingsWarning, and outputs are returned
        ignore         kinds of findings to ignore: "same value", or a list (docs/kernel-checking.md)
        seed           selects an order of simdgroups
        limit          most seconds on the CPU; None: no limit

        Returns the list of outputs."""
        if arrays:
            raise TypeError(f"{self.name}: {_by_place(self, len(arrays))}")
        if ensure_row_contiguous is not None:
            self = self._laid_out(ensure_row_contiguous)
        if stream is not None and not _streams.is_of_cuda(stream):
            if verbose:
                print(f"// stream={stream!r} is no CUDA stream: it says nothing here and is ignored")
            stream = None
        handle = None if stream is None else _streams.handle_of(stream)
        words: tuple | None = None  # what such a call is remembered by
        if not (verbose or check) and limit is None:
            words = (
                inputs, output_shapes, output_dtypes, grid, threadgroup, _items(template), init_value, shared_memory,
                _items(in_place), out,
            )  # fmt: skip
            made = self._fast(*words, handle)
            if made is not NotImplemented:
                return made
            _fast.bind()
        given = _Given(
            inputs, output_shapes, output_dtypes, grid, threadgroup, template, init_value, stream, out, in_place,
            shared_memory, check, ignore, seed, limit,
        )  # fmt: skip
        with _Prepared(self, given) as ready:
            if verbose:
                print(ready.text())
            ready.launch()
            if words is not None:
                self._learn(*words, *ready.learned())
            return ready.results

    # ---- what a launch would be ----
    def text(self, **call) -> str:
        """The generated source of a launch, as the compiler gets it; takes what a call takes."""
        with self._prepared(call) as ready:
            return ready.text()

    def prepare(self, **call) -> None:
        """Compiles and loads what a call needs, so that nothing is left for the first one."""
        with self._prepared(call) as ready:
            ready.run(_lib.qn_kernel_prepare)

    def info(self, **call) -> KernelInfo:
        """What the compiler made of a launch: registers, shared memory, the largest group."""
        with self._prepared(call) as ready:
            found = sized(abi.KernelInfo)
            ready.run(_lib.qn_kernel_query, byref(found))
            return KernelInfo(
                found.registers, found.shared_bytes, found.local_bytes, found.most_threads, tuple(found.group),
                found.groups_at_once, bool(found.fibers),
            )  # fmt: skip

    def emit(self, form: str, **call) -> str:
        """Source to keep or to hand to another build: "cuda" and "hip" (whole files), "metal" (the function as MLX
        would generate it), "mlx" (the Python of the same MLX call)."""
        if form not in abi.EMIT:
            raise ValueError(f"{self.name}: form is {form!r}; it may be {', '.join(abi.EMIT)}")
        with self._prepared(call) as ready:
            text = c_void_p()
            _lib.qn_kernel_emit(self._handle, abi.EMIT[form], ready.frame.call_ref, byref(text))
            return take_text(text)

    def _prepared(self, call: dict) -> _Prepared:
        call.pop("verbose", None)
        self = self._laid_out(call.pop("ensure_row_contiguous", None))
        if not _streams.is_of_cuda(call.get("stream")):
            call.pop("stream", None)
        for name in call:
            if name not in _Given._fields:
                raise TypeError(f"{self.name}: there is no argument {name!r}")
        for name in ("inputs", "grid"):
            if call.get(name) is None:
                raise TypeError(f"{self.name}: {name} is wanted")
        return _Prepared(self, _Given(**call))


def _by_place(kernel: Kernel, n: int) -> str:
    """What is wrong with a call with n arguments by place."""
    return (
        f"{n} argument{'s are' if n > 1 else ' is'} given by place, and a call of a kernel names each one: "
        f"{kernel.name}(inputs=[{', '.join(kernel.input_names)}], grid=(n, 1, 1), output_shapes=[...], "
        "output_dtypes=[...])"
    )


def _items(words: object) -> object:
    """A dict as its pairs."""
    return tuple(words.items()) if type(words) is dict else words


def _make(dialect: int, source: object, header: object, strided: object, **given) -> Kernel:
    what = given["name"] if isinstance(given["name"], str) else "kernel"
    body, file = _read(f"{what}: source", source)
    header_text, _ = _read(f"{what}: header", "" if header is None else header)
    return Kernel(dict(given, dialect=dialect, body=body, file=file, header=header_text, strided=strided))


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: object,
    header: object = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool | Sequence[str] = False,
    compile_options: dict | None = None,
    *,
    math: str = "safe",
    contracts: dict[str, str] | None = None,
    strided: Sequence[str] = (),
) -> Kernel:
    """Returns a kernel from its body in the words of Metal, as mlx.core.fast.metal_kernel does; it runs on the CPU
    and on NVIDIA GPUs.

    name                   an identifier
    input_names            names of the inputs in the body; it may also name x_shape, x_strides and x_ndim
    output_names           names of the outputs
    source                 the body of one thread: text, or the path of a file, which messages then name
    header                 functions, types and constants before it: text or a path
    ensure_row_contiguous  copies strided inputs to row-major order first
    atomic_outputs         outputs of type atomic<T>: all, none, or those listed
    compile_options        {"math_mode": ...}, as in MLX
    math                   "safe", "relaxed" or "fast" (docs/kernels-from-a-body.md)
    contracts              types and shapes by name, checked before each launch: {"inp": "f32|f16 [n, 2]"}
    strided                inputs that are not copied although ensure_row_contiguous is set"""
    for word, value in (compile_options or {}).items():
        if word != "math_mode":
            raise ValueError(f"{name}: compile_options has {word!r}; there is 'math_mode'")
        math = value
    return _make(
        abi.METAL, source, header, strided, name=name, input_names=input_names, output_names=output_names,
        ensure_row_contiguous=ensure_row_contiguous, atomic_outputs=atomic_outputs, math=math, contracts=contracts,
        shared_memory=0, cluster=0,
    )  # fmt: skip


def cuda_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: object,
    header: object = "",
    ensure_row_contiguous: bool = True,
    shared_memory: int = 0,
    *,
    math: str = "safe",
    contracts: dict[str, str] | None = None,
    strided: Sequence[str] = (),
    cluster: int = 0,
) -> Kernel:
    """Returns a kernel from its body in the words of CUDA, as mlx.core.fast.cuda_kernel does; it runs on the CPU and on
    NVIDIA GPUs. shared_memory: bytes of `extern __shared__` memory per group; a call may give another number. cluster:
    groups along x, at most 16, that run at once and reach each other's shared memory; the grid is one of whole
    clusters, the call gives the threadgroup, and only GPUs of compute capability 9.0 and above run it. The other
    arguments are those of metal_kernel."""
    return _make(
        abi.CUDA, source, header, strided, name=name, input_names=input_names, output_names=output_names,
        ensure_row_contiguous=ensure_row_contiguous, atomic_outputs=False, math=math, contracts=contracts,
        shared_memory=shared_memory, cluster=cluster,
    )  # fmt: skip
