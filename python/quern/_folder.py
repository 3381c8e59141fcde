# SPDX-License-Identifier: Apache-2.0
"""A kernel's folder as a function: kernel.json and the body beside it, as the command `quern kernel` has them. From the
inputs' shapes come extents, from these template values, outputs and grid. What only the command needs (fills,
references, workloads) is not read here."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from . import _kernel_abi as abi
from . import _kernel_read as reading
from . import _kernel_values as values
from . import _streams
from ._expression import Expression
from ._kernel import Kernel, cuda_kernel, metal_kernel
from ._kernel_plan import _numpy_dtype

_MOST_CALLS = 256  # kinds of calls that are remembered
_HEALTH = "dbg"
_ERROR, _SUCCESS = 13, 15  # qn_health


def _split(text: str) -> list[str]:
    """At its commas, but for those within parentheses: "m, min(m, n)" is two."""
    made, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            made.append("")
        else:
            made[-1] += letter
    return made


class Contract:
    """A tensor's contract in kernel.json: "f32|f16 [n, h, 2*w]", "inp.dtype [..., n]", "f32 [like inp]". types: storage
    types; type_of: the input whose type it has; leading: any number of extents before those that are named. earlier:
    the contracts before this one, by name."""

    def __init__(self, text: object, earlier: Mapping[str, Contract]) -> None:
        if not isinstance(text, str):
            raise ValueError(f"the contract is {text!r}, it must be a text such as 'f32 [n]'")
        self.text = text
        types, bracket, rest = text.partition("[")
        inside, closed, _ = rest.partition("]")
        if not bracket or not closed:
            raise ValueError(f'"{text}" has no extents in [ ]')
        self.type_of: str | None = None
        self.types: list[int] = []
        for word in types.replace("|", " ").split():
            if word.endswith(".dtype"):
                self.type_of = word[: -len(".dtype")]
            else:
                self.types.append(values.code_of(f'a storage type of "{text}"', word))
        parts: list[str] = []
        for part in (part.strip() for part in _split(inside)) if inside.strip() else ():
            parts += earlier[part[5:].strip()].parts if part.startswith("like ") else [part]
        self.parts: list[str] = parts
        self.leading = bool(parts) and parts[0] == "..."
        self.extents = [Expression(part) for part in (parts[1:] if self.leading else parts)]

    @property
    def library_text(self) -> str:
        """What of it the library checks before each launch: it knows numbers and names of extents, and no sums."""
        types = "" if self.type_of else self.text.partition("[")[0].strip()
        extents = [
            one.text if one.text in one.names or not one.names and one.text.isdigit() else f"extent{k}"
            for k, one in enumerate(self.extents)
        ]
        behind = self.text.partition("]")[2].strip()
        inside = ", ".join((["..."] if self.leading else []) + extents)
        return f"{types} [{inside}] {behind}".strip()

    def check(self, name: str, shape: Sequence, code: int, extents: Mapping, code_of: Mapping[str, int]) -> None:
        """What the library does not check of an input."""
        if self.type_of and code != code_of[self.type_of]:
            raise TypeError(
                f"{name} is {values.name_of(code)}, and {self.type_of}, whose type it has by its contract, is "
                f"{values.name_of(code_of[self.type_of])}"
            )
        for expression, extent in zip(self.extents, shape[len(shape) - len(self.extents) :]):
            if expression.names and expression.text not in expression.names and expression(extents) != extent:
                raise ValueError(f"{name} has the extent {extent} where {expression.text} is {expression(extents)}")

    def learn(self, name: str, shape: Sequence, extents: dict) -> None:
        """Binds the bare names among its extents to those of an input; a name that is bound stays."""
        behind = len(shape) - len(self.extents)
        if behind < 0 or (behind and not self.leading):
            raise ValueError(f'{name} has {len(shape)} dimensions, and its contract is "{self.text}"')
        for expression, extent in zip(self.extents, shape[behind:]):
            if expression.text in expression.names:
                extents.setdefault(expression.text, extent)
        if self.leading:
            extents.setdefault("...", tuple(shape[:behind]))

    def shape(self, extents: Mapping) -> tuple:
        before = extents.get("...", ()) if self.leading else ()
        return (*before, *(expression(extents) for expression in self.extents))


class Asked(NamedTuple):
    """A launch that follows from inputs: what Kernel's call takes besides them."""

    template: list[tuple[str, object]]
    grid: tuple
    threadgroup: tuple | None
    output_shapes: list[tuple]
    output_dtypes: list[str]
    shared_memory: int


class FolderKernel:
    """A kernel's folder as a function of arrays: kernel(x, y) -> out, the outputs as a tuple where there are several.

    Positional arguments are the inputs that have no value in the file's "scalars"; those and template values may be
    given by name, as may threadgroup, out, stream, check, seed, limit and verbose (see quern.Kernel). `kernel` is the
    quern.Kernel behind it. An output `dbg` is the health buffer: it is read back, and where it does not say success,
    `fallback` is called with the inputs, or quern.KernelError raised."""

    def __init__(self, folder: str | os.PathLike, fallback: Callable | None = None) -> None:
        self.folder = os.path.abspath(os.fspath(folder))
        self._path = os.path.join(self.folder, "kernel.json")
        self.fallback = fallback
        with open(self._path, encoding="utf-8") as file:
            try:
                self._file = json.load(file)
            except ValueError as error:
                raise ValueError(f"{self._path} is no JSON: {error}") from None
        try:
            self._read()
        except KeyError as error:
            raise ValueError(f"{self._path}: the member {error} is missing") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{self._path}: {error}") from None
        self._calls: dict[object, Asked] = {}

    # ---- the file ----
    def _read(self) -> None:
        given = self._file
        if not isinstance(given, dict):
            raise ValueError("it must be an object")
        self.name: str = given["name"]
        self.inputs: dict[str, Contract] = {}
        self.outputs: dict[str, Contract] = {}
        for side, texts in ((self.inputs, given.get("inputs") or {}), (self.outputs, given["outputs"])):
            for name, text in texts.items():
                side[name] = Contract(text, {**self.inputs, **self.outputs})
        self.scalars: dict[str, object] = dict(given.get("scalars") or {})
        self.templates = {name: self._template(value) for name, value in (given.get("templates") or {}).items()}
        self._ignore: list[str] = list(given.get("ignore") or [])
        self.arguments = [name for name in self.inputs if name not in self.scalars]
        self.returned = [name for name in self.outputs if name != _HEALTH] or [_HEALTH]
        for name, contract in self.outputs.items():
            if contract.type_of is None and len(contract.types) != 1:
                raise ValueError(f'the output {name} is "{contract.text}", which does not say of which type it is')
        self._grid = [Expression(part) for part in given["grid"]]
        group = given.get("threadgroup")
        self._group = None if group is None else [Expression(part) for part in group]
        self._shared = Expression(given.get("shared_bytes") or 0)
        # JSON has no numbers that are not finite; captures write them as words.
        init = {
            name: float(value) if value in ("nan", "inf", "-inf") else value
            for name, value in (given.get("init") or {}).items()
        }
        self._init = self._one_each(init, self.outputs)
        self._in_place = dict(given.get("in_place") or {}) or None
        self.kernel = self._make(given)
        self.__doc__ = f"{given.get('doc', '')}\n\n{self.kernel.__doc__}".strip() + "\n"
        self.__name__ = self.name

    def _make(self, given: dict):
        dialect = given.get("dialect", "metal")
        if dialect not in ("metal", "cuda"):
            raise ValueError(f"dialect is {dialect!r}; it may be metal or cuda")
        make: Callable[..., Kernel] = cuda_kernel
        if dialect == "metal":
            make = functools.partial(metal_kernel, atomic_outputs=list(given.get("atomic") or []))
        source = given.get("source") or f"{self.name}.{'metal' if dialect == 'metal' else 'cu'}"
        header = given.get("header")
        return make(
            name=self.name,
            input_names=list(self.inputs),
            output_names=list(self.outputs),
            source=_beside(self.folder, source),
            header=_beside(self.folder, header) if header else "",
            strided=list(given.get("strided") or []),
            math=given.get("math", "safe"),
            contracts={name: contract.library_text for name, contract in self.inputs.items()},
        )

    def _template(self, value: object) -> object:
        """A bool, an int, a storage type as ("type", code), the type of an input as ("of", name), or an Expression."""
        if isinstance(value, (bool, int)):
            return value
        if not isinstance(value, str):
            raise ValueError(f"a template value is {value!r}")
        if value.endswith(".dtype"):
            return ("of", value[: -len(".dtype")])
        code = values.code_or_none(value)
        return Expression(value) if code is None else ("type", code)

    @staticmethod
    def _one_each(given: Mapping, names: Mapping) -> list | None:
        return [given.get(name) for name in names] if given else None

    def __repr__(self) -> str:
        return f"<quern kernel {self.name}({', '.join(self.arguments)}) of {self.folder}>"

    def __reduce__(self):
        return FolderKernel, (self.folder, self.fallback)

    # ---- from inputs to a launch ----
    def asked(self, shapes: Sequence, codes: Sequence, given: Mapping[str, object], threadgroup=None) -> Asked:
        """The launch for inputs of these shapes and storage types; given: template values that replace the file's."""
        extents: dict = {}
        for (name, contract), shape in zip(self.inputs.items(), shapes):
            contract.learn(f"{self.name}: {name}", shape, extents)
        code_of = dict(zip(self.inputs, codes))
        for name, code in code_of.items():
            extents[f"{name}.bytes"] = values.bytes_of(code)
        dtypes = [code_of[c.type_of] if c.type_of else c.types[0] for c in self.outputs.values()]
        for name, code in zip(self.outputs, dtypes):
            extents[f"{name}.bytes"] = values.bytes_of(code)
        for (name, contract), shape in zip(self.inputs.items(), shapes):
            contract.check(f"{self.name}: {name}", shape, code_of[name], extents, code_of)
        template = [(name, self._value(name, extents, code_of, given)) for name in self.templates]
        group = threadgroup
        if group is None and self._group is not None:
            group = [expression(extents) for expression in self._group]
        for axis, number in zip("xyz", group or (0, 0, 0)):
            extents[f"threadgroup.{axis}"] = number
        return Asked(
            template,
            tuple(expression(extents) for expression in self._grid),
            None if group is None else tuple(group),
            [contract.shape(extents) for contract in self.outputs.values()],
            [values.name_of(code) for code in dtypes],
            self._shared(extents),
        )

    def _value(self, name: str, extents: dict, code_of: Mapping[str, int], given: Mapping[str, object]) -> object:
        value = given[name] if name in given else self.templates[name]
        if isinstance(self.templates[name], bool) and not isinstance(value, bool):
            value = bool(value)
        if isinstance(value, Expression):
            value = value(extents)
        elif isinstance(value, tuple):
            return values.name_of(code_of[value[1]] if value[0] == "of" else value[1])
        if isinstance(value, int):  # a bool too
            extents[name] = int(value)
        return value

    # ---- the call ----
    def __call__(self, *arrays, threadgroup=None, out=None, fallback: Callable | None = None, **given):
        inputs = self._inputs(arrays, given)
        templates = {name: given.pop(name) for name in [*given] if name in self.templates}
        asked = self._asked(inputs, templates, threadgroup)
        if out is not None:
            given["out"] = self._out(out)
        outputs = self.kernel(
            inputs=inputs,
            template=asked.template,
            grid=asked.grid,
            threadgroup=asked.threadgroup,
            output_shapes=asked.output_shapes,
            output_dtypes=asked.output_dtypes,
            init_value=self._init,
            in_place=self._in_place,
            shared_memory=asked.shared_memory,
            **{"ignore": self._ignore, **given},
        )
        named = dict(zip(self.outputs, outputs))
        if _HEALTH in named:
            try:
                self._healthy(named[_HEALTH])
            except RuntimeError:
                fallback = fallback or self.fallback
                if fallback is None:
                    raise
                return fallback(*arrays)
        returned = tuple(named[name] for name in self.returned)
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
        by_name = dict(zip(self.arguments, arrays))
        return [
            by_name[name] if name in by_name else self._number(name, given.pop(name, self.scalars.get(name)))
            for name in self.inputs
        ]

    def _number(self, name: str, value: object) -> object:
        """A number of Python's in the type that the contract has for it, where its own is none of those."""
        types = self.inputs[name].types
        if not isinstance(value, (bool, int, float)) or not types:
            return value
        if values.scalar(name, float(value) if isinstance(value, float) else value)[0] in types:
            return value
        import numpy

        return numpy.array(value, _numpy_dtype(types[0]))

    def _out(self, out) -> list:
        given = [out] if len(self.returned) == 1 and not isinstance(out, (list, tuple)) else list(out)
        if len(given) != len(self.returned):
            raise ValueError(f"{self.name}: out has {len(given)} of {len(self.returned)}: {', '.join(self.returned)}")
        by_name = dict(zip(self.returned, given))
        return [by_name.get(name) for name in self.outputs]

    def _asked(self, inputs: Sequence, templates: Mapping[str, object], threadgroup) -> Asked:
        described = [_describe(f"{self.name}: {name}", value) for name, value in zip(self.inputs, inputs)]
        key = (
            tuple(described),
            tuple([(name, type(value), value) for name, value in templates.items()]),
            None if threadgroup is None else tuple(threadgroup),
        )
        made = self._calls.get(key)
        if made is None:
            shapes, codes = zip(*described) if described else ((), ())
            made = self.asked(shapes, codes, templates, threadgroup)
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


def _beside(folder: str, name: object) -> pathlib.Path:
    if not isinstance(name, str) or not name or os.path.isabs(name) or ".." in name:
        raise ValueError(f"{name!r} must be the name of a file in the folder")
    return pathlib.Path(folder, name)


def _describe(name: str, value: object) -> tuple[tuple, int]:
    """(shape, code) of an input of any kind."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        code = _codes.get(dtype)
        if code is None:
            code = values.code_of(name, dtype)
            _codes[dtype] = code
        return tuple(shape), code
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
