# SPDX-License-Identifier: Apache-2.0
"""Learned optimizers on plain arrays (NumPy, CuPy, PyTorch's tensors, anything with DLPack or an array interface), in
place and without PyTorch: their base, SmallFCLopt and ELO; VeLO is in _velo_arrays.py, and quern.torch has those for
PyTorch. Lists of arrays are read as lion_ reads them (_columns.py)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import _arrays, _lopt, _lopt_weights, _streams, _threads
from ._call import _framework, _written
from ._columns import Column, Group
from ._library import DTYPES
from ._ops import Role
from ._tensors import Tensors
from ._versions import count_writes
from ._workspace import Workspace

_F32 = DTYPES["f32"]


def zeros(title: str, shape: Sequence[int], like: object, device: tuple[int, int], dtype: str = "float32"):
    """An array of zeros in the library and on the device of another."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(like, torch.Tensor):
        return like.detach().new_zeros(tuple(shape), dtype=getattr(torch, dtype))
    if cupy is not None and isinstance(like, cupy.ndarray):
        with cupy.cuda.Device(device[1]):
            return cupy.zeros(tuple(shape), dtype)
    if device[0] != _arrays.CPU:
        raise TypeError(
            f"{title}: params are on a GPU and neither PyTorch's nor CuPy's, so quern cannot make state beside them: "
            "give it by load_state_dict()"
        )
    import numpy

    return numpy.zeros(tuple(shape), dtype)


def viewed(name: str, value: object, dtype: str, order: _streams.Order, written: bool) -> _arrays.View:
    """An array by itself. TypeError where it is of another type."""
    view = _arrays.view(name, value, order, written)
    if isinstance(view, _arrays.Later):
        view = view.view(order)
    if view.dtype != dtype:
        raise TypeError(f"{name} is {view.dtype}, it must be {dtype}")
    return view


def _copied(value):
    """An array of its own with the same elements, row-major."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().clone(memory_format=torch.contiguous_format)
    copy = getattr(value, "copy", None)
    if callable(copy):
        return copy()
    import numpy

    return numpy.array(value)


def _plain(value):
    """A number or a word, also as numpy.load gives it back."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


class Learned:
    """What the optimizers share. A derived class says which family it is, and has the constructor."""

    _family: _lopt.Family
    lr_scale: Any
    ties: str
    clip_grad: Any  # of ELO alone

    def _made(self, shapes, weights: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """What a constructor of _lopt.constructor() calls."""
        title = self._family.title
        if _arrays.is_array(shapes) or isinstance(shapes, (str, bytes)):
            raise TypeError(f"{title}: shapes is {_arrays._a(shapes)}, it must be a sequence of shapes")
        try:
            given = list(shapes)
        except TypeError:
            raise TypeError(f"{title}: shapes is {_arrays._a(shapes)}, it must be a sequence of shapes") from None
        self.shapes = tuple(_lopt.check_shape(title, f"shapes[{k}]", shape) for k, shape in enumerate(given))
        weights, fan_in = _lopt.given_weights(self._family, weights)
        for name, value in _lopt.with_decays(self._family, weights, options).items():
            setattr(self, name, value)
        if fan_in is not None and self.lr_scale is None:
            widths = (_lopt.width_of(title, f"shapes[{k}]", shape, fan_in) for k, shape in enumerate(self.shapes))
            self.lr_scale = [1 / width for width in widths]
        self._options()
        self._weights = {
            name: _lopt_weights.flat(self._family.weights[name], f"{title}: {name}", value)
            for name, value in weights.items()
        }
        self._checksum = _lopt_weights.checksum(self._weights.values())
        self._on_device: dict[tuple, _lopt.DeviceWeights] = {}
        self._state: list[list] | None = None  # by STATE, each a list of arrays; made at the first step
        self._shared: dict[str, Any] = {}  # what is kept beside the arrays' states, by name
        self.steps = 0

    def __setattr__(self, name: str, value: object) -> None:
        if "steps" in self.__dict__ and not name.startswith("_") and not hasattr(self, name):
            known = ", ".join(sorted(vars(self).keys() & {*self._family.defaults, "clip_grad", "lr_scale"}))
            raise AttributeError(f"{self._family.title}: there is no option {name!r}; there are {known}")
        if name == "ties" and "steps" in self.__dict__ and value != self.ties:
            raise ValueError(
                f"{self._family.title}: ties is {self.ties!r} and cannot change, because the state is of it: make "
                "another optimizer"
            )
        super().__setattr__(name, value)

    def _options(self) -> dict[str, Any]:
        """As they are now; anything wrong with them is raised."""
        options = {name: getattr(self, name) for name in self._family.defaults}
        _lopt.check(self._family, options)
        return options

    def _told(self, k: int) -> tuple[int, ...]:
        """The shape of array k that the library is told."""
        return self.shapes[k]

    # ---- state ----
    def _state_shapes(self, k: int) -> tuple[tuple[int, ...], ...]:
        """Of array k, in the order of STATE."""
        return _lopt.state_shapes(self._family, self._family.ties[self.ties], self._told(k))

    def state_dict(self) -> dict[str, Any]:
        """{"step": steps taken, "ties": the option, "weights_checksum": of the network's weights, "exp_avg.0": array,
        "exp_avg_sq.0": ..., "exp_avg_sq_r.0": ..., "exp_avg_sq_c.0": ..., "exp_avg.1": ...}: the arrays themselves, in
        the library of the parameters, which the next step changes. Before the first step there are none."""
        made: dict[str, Any] = {"step": self.steps, "ties": self.ties, _lopt_weights.CHECKSUM: self._checksum}
        made.update(self._shared)
        for k in range(len(self.shapes) if self._state is not None else 0):
            for name, arrays in zip(_lopt.STATE, self._state or ()):
                made[f"{name}.{k}"] = arrays[k]
        return made

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes copies of what state_dict() gave, also where it went through a file. ValueError or TypeError for what
        is missing, does not belong here, is of another shape or type, or was made under other network weights or other
        ties; then nothing is loaded."""
        title = self._family.title
        step = self._loaded_step(state)
        names = [[f"{name}.{k}" for k in range(len(self.shapes))] for name in _lopt.STATE]
        shared = self._shared_shapes()
        of_all = {"step", "ties", _lopt_weights.CHECKSUM}
        known = {*of_all, *shared, *(name for of_entry in names for name in of_entry)}
        for name in state:
            if name not in known:
                raise ValueError(f"{title}: the state has {name!r}, which does not belong to {len(self.shapes)}")
        _lopt_weights.check_checksum(title, state.get(_lopt_weights.CHECKSUM), self._checksum)
        _lopt.check_ties(title, "the state", _plain(state.get("ties")), self.ties)
        if not state.keys() - of_all:
            self._state, self.steps, self._shared = None, step, {}
            return
        for of_entry in [*names, list(shared)]:
            for name in of_entry:
                if name not in state:
                    raise ValueError(f"{title}: the state has no {name!r}")
        given = [[state[name] for name in of_entry] for of_entry in names]
        for entry, of_entry in enumerate(given):
            self._check_entry(entry, of_entry)
        for name, (shape, dtype) in shared.items():
            self._check_one(name, state[name], shape, dtype)
        self._state = [[_copied(value) for value in of_entry] for of_entry in given]
        self._shared = {name: _copied(state[name]) for name in shared}
        self.steps = step

    def _loaded_step(self, state: Mapping[str, Any]) -> int:
        title = self._family.title
        if "step" not in state:
            raise ValueError(f"{title}: the state has no 'step'")
        return _lopt.counter(title, "the state's step", _plain(state["step"]))

    def _shared_shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shapes and types of what is kept beside the arrays' states."""
        return {}

    def _check_entry(self, entry: int, arrays: Sequence) -> None:
        for k, value in enumerate(arrays):
            why = f", for a parameter of {self.shapes[k]}"
            self._check_one(f"{_lopt.STATE[entry]}.{k}", value, self._state_shapes(k)[entry], "float32", why)

    def _check_one(self, name: str, value: object, shape: tuple[int, ...], dtype: str, why: str = "") -> None:
        name = f"{self._family.title}: the state's {name}"
        view = viewed(name, value, dtype, _streams.Order(), False)
        if tuple(view.shape) != shape:
            raise ValueError(f"{name} has the shape {tuple(view.shape)}{why}, it must be {shape}")

    def _states(self, params: Column, device: tuple[int, int]) -> list[list]:
        """What there is, or zeros."""
        if self._state is not None:
            return self._state
        title = self._family.title
        return [
            [zeros(title, self._state_shapes(k)[entry], like, device) for k, like in enumerate(params.arrays)]
            for entry in range(len(_lopt.STATE))
        ]

    # ---- a step ----
    def _column(self, role: Role, argument: object, order: _streams.Order) -> Column:
        title = self._family.title
        arrays, alone = _arrays.listed(f"{title}: {role.plural}", argument)
        if len(arrays) != len(self.shapes):
            raise ValueError(
                f"{title}: {role.plural} has {len(arrays)} arrays, and the optimizer was made for {len(self.shapes)}"
            )
        for k, value in enumerate(arrays):
            if value is None:
                raise ValueError(f"{title}: {role.plural}[{k}] is missing: every array must have one at every step")
        column = Column(title, role, arrays[0] if alone else arrays, order, role.written)
        column.settle(frozenset([_F32]), order)
        if role.written:
            column.refuse_read_only(None)
        for k in range(len(column)):
            name, (code, _) = f"{title}: {role.plural}[{k}]", column.kind(k)
            if code != _F32:
                raise TypeError(f"{name} is {_arrays.LONG_NAMES[code]}, it must be float32")
            if tuple(column.shapes[k]) != self.shapes[k] and role.index < 2:
                raise ValueError(
                    f"{name} has the shape {tuple(column.shapes[k])}, and the optimizer was made for {self.shapes[k]}"
                )
        return column

    def _one_device(self, columns: Sequence[Column]) -> tuple[int, int]:
        device = columns[0].kind(0)[1] if self.shapes else _arrays.CPU_DEVICE
        for column in columns:
            for k in range(len(column)):
                other = column.kind(k)[1]
                if other != device:
                    names = [_arrays.place_name(one) for one in (other, device)]
                    raise ValueError(
                        f"{self._family.title}: {column.role.plural}[{k}] is on {names[0]} and params[0] on {names[1]}"
                    )
        return device

    def _weights_on(self, name: str, device: tuple[int, int], stream: int) -> int:
        """The address of weights in that device's memory."""
        values = self._weights[name]
        if device[0] == _arrays.CPU:
            return values.buffer_info()[0]
        key = (name, device)
        if key not in self._on_device:
            self._on_device[key] = _lopt.DeviceWeights(values, device, stream)
        return self._on_device[key].address

    def _changed(self, grads: Column) -> Column:
        """The gradients that the library is given, where they are not the caller's own."""
        return grads

    def _besides(self, params: Column, device: tuple[int, int], order: _streams.Order) -> list[Tensors]:
        """What the library's step takes beside the six roles."""
        return []

    def _took(self) -> None:
        """A step has been taken: what _besides() made is kept."""

    def _step(self, params, grads, stream) -> None:
        options = self._options()
        factors = _lopt.scales(self._family.title, self.lr_scale, len(self.shapes))
        order = _streams.Order(stream)
        roles = self._family.op.roles
        given = [self._column(roles[0], params, order), self._column(roles[1], grads, order)]
        device = self._one_device(given)
        states = self._states(given[0], device)
        columns = [given[0], self._changed(given[1])]
        for column in columns:
            column.shapes = [self._told(k) for k in range(len(column))]
        columns += [self._column(role, arrays, order) for role, arrays in zip(self._family.state, states)]
        self._one_device(columns)
        if stream is not None and device[0] != _arrays.CUDA:
            raise ValueError(f"{self._family.title}: stream is given, and the arrays are not on a GPU")
        besides = self._besides(given[0], device, order)
        group = Group(columns, None, len(self.shapes))
        self._call(group, columns, besides, device, order, options, factors)
        self._took()
        self._state = states
        self.steps += 1
        count_writes(_written(columns, [group]))

    def _call(
        self, group: Group, columns: list[Column], besides, device, order: _streams.Order, options, factors
    ) -> None:
        family, framework = self._family, _framework(columns)
        pool = None
        if device[0] == _arrays.CPU:
            pool = _threads.pool_for(framework)
        execution = _lopt.execution_on(device, order, pool)
        params = _lopt.params_of(family, options, self.steps)
        for name in family.weights:
            setattr(params, name, self._weights_on(name, device, execution.stream or 0))
        if factors is not None:
            params.lr_scale = factors.buffer_info()[0]
        roles = family.op.roles_array([*group.tensors, *besides])
        n_bytes = family.op.call_workspace_bytes(execution, params, group.n, roles)
        workspace = Workspace(n_bytes, device, execution.stream or 0, framework) if n_bytes else None
        if workspace is not None:
            execution.workspace, execution.workspace_bytes = workspace.address, n_bytes
        try:
            others = device[0] == _arrays.CUDA and order.wait_for_others(device[1])
            family.op.step(execution, params, group.n, roles)
            if others:
                order.finish(device[1])
        finally:
            if workspace is not None:
                workspace.close()


class _WithoutLoss(Learned):
    """Those whose step takes parameters and gradients, and nothing else."""

    def step(self, params, grads, *, stream=None) -> None:
        """One step in place: params are moved, grads are read. Arrays of float32, row-major, of the shapes that the
        optimizer was made for, all on one device; state is made at the first step, beside the parameters.

        stream : where work on a GPU goes; None: the current stream of the arrays' library

        Raises ValueError, TypeError or RuntimeError with a sentence; then nothing has been written."""
        self._step(params, grads, stream)


OPTIONS = {
    "lr_scale": _lopt.Option(
        None,
        "a factor of the learning rate for each array (muP: 1 / width); None: all 1, or under weights of "
        "`quern meta-train`, such as those that come with quern, 32 over the inputs of each array of two or more "
        "dimensions",
    )
}
SHAPES = "shapes of the trained arrays, each of 0 to 5 dimensions"
LAST = """All but shapes and weights are attributes that may be changed between steps. `steps` counts the steps and is
    an input of the network."""


class SmallFCLopt(_WithoutLoss):
    _family = _lopt.SMALL_FC
    __init__ = _lopt.constructor(_family, "shapes", OPTIONS)
    __doc__ = _lopt.document(_family, "shapes", SHAPES, OPTIONS, LAST)


OF_ELO = {
    "clip_grad": _lopt.Option(
        None, "bound of the norm of all gradients together; None: none. Gradients are not changed: copies are"
    ),
    **OPTIONS,
}


class Bounded(_WithoutLoss):
    """Those that bound the norm of all gradients together."""

    def _options(self) -> dict[str, Any]:
        _lopt.bound(self._family.title, "clip_grad", self.clip_grad)
        return super()._options()

    def _changed(self, grads: Column) -> Column:
        bound = _lopt.bound(self._family.title, "clip_grad", self.clip_grad)
        if bound is None or not self.shapes:
            return grads
        return Column(
            self._family.title, grads.role, _bounded(self._family.title, grads.arrays, bound), _streams.Order(), False
        )


class ELO(Bounded):
    _family = _lopt.ELO
    __init__ = _lopt.constructor(_family, "shapes", OF_ELO)
    __doc__ = _lopt.document(_family, "shapes", SHAPES, OF_ELO, LAST)


def _bounded(title: str, grads: Sequence, bound: float) -> list:
    """Copies of the gradients, of NaN and infinities made numbers, whose norm over all of them is at most the bound."""
    torch = sys.modules.get("torch")
    if torch is not None and all(isinstance(grad, torch.Tensor) for grad in grads):
        from .torch._lopt_bound import bounded

        return bounded([grad.detach() for grad in grads], bound)
    library = sys.modules.get(type(grads[0]).__module__.partition(".")[0])
    if library is None or not hasattr(library, "nan_to_num"):
        raise TypeError(f"{title}: clip_grad is for arrays of NumPy, CuPy and PyTorch, of which these are none")
    made = [library.array(grad) for grad in grads]
    quiet = getattr(library, "errstate", None)  # a square that is infinite is meant to be: the factor is 0 then
    with quiet(over="ignore") if quiet else contextlib.nullcontext():
        for copy in made:
            library.nan_to_num(copy, copy=False)
        squares = sum((library.sum(library.square(copy), dtype="float64") for copy in made), library.zeros(()))
    factor = (bound / library.maximum(library.sqrt(squares), bound)).astype("float32")
    for copy in made:
        library.multiply(copy, factor, out=copy)
    return made
