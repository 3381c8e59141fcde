# SPDX-License-Identifier: Apache-2.0
"""Runs a plan in the place of a module's forward: looks at each call, whether it is of the kind that the plan was made
for, and calls the module itself where it is not. Exported files use this module too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch.utils import _pytree as pytree

from .. import _fast
from . import _objects
from ._memory import Memory as Memory
from ._replay import Replay

_KINDS = (torch.Tensor, torch.nn.Parameter)
# Modules of torch.nn whose `training` changes what they compute, by a part of their name.
_MODES = ("Dropout", "BatchNorm", "InstanceNorm", "RNN", "LSTM", "GRU", "RReLU", "Attention", "Transformer")


def _switches(cuda: bool) -> list[Callable[[], object]]:
    kind = "cuda" if cuda else "cpu"
    return [
        functools.partial(torch.is_autocast_enabled, kind),
        functools.partial(torch.get_autocast_dtype, kind),
        torch.get_default_dtype,
        torch._C._get_deterministic_algorithms,
        *((torch._C._get_cublas_allow_tf32, torch._C._get_cudnn_allow_tf32) if cuda else ()),
    ]


def plain() -> bool:
    """No mode, transform or tracing stands between a call and its tensors."""
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch.autograd.forward_ad._current_level < 0
        and not torch._C._is_tracing()
    )


def state(cuda: bool) -> tuple:
    """The switches of PyTorch that a plan depends on."""
    switches = _switches(cuda)
    enabled, dtype, default, deterministic = (switch() for switch in switches[:4])
    made = (dtype if enabled else None, default, deterministic)
    try:
        return (*made, *(switch() for switch in switches[4:]))
    except RuntimeError:  # PyTorch 2.9's own switches were used, which TF32's older ones refuse to read
        cudnn = torch.backends.cudnn
        return (*made, torch.backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision)


def _matters(module: torch.nn.Module) -> bool:
    kind = type(module)
    return not kind.__module__.startswith("torch.nn.modules.") or any(word in kind.__name__ for word in _MODES)


def _guard(leaves: Sequence) -> Callable[..., bool]:
    """A function of the leaves of a call: are they as those of the first one, but for the tensors' values?"""
    names: dict = {"KINDS": _KINDS}
    tests = []
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            names |= {f"D{k}": leaf.dtype, f"P{k}": leaf.device, f"S{k}": leaf.shape, f"T{k}": leaf.stride()}
            tests.append(
                f"a{k}.__class__ in KINDS and a{k}.dtype is D{k} and a{k}.shape == S{k} and a{k}.stride() == T{k} "
                f"and a{k}.device == P{k} and not a{k}.is_neg() and not a{k}.is_conj()"
            )
        else:
            names |= {f"V{k}": leaf, f"C{k}": type(leaf)}
            tests.append(f"a{k}.__class__ is C{k} and a{k} == V{k}")
    arguments = ", ".join(f"a{k}" for k in range(len(leaves)))
    exec(f"def same({arguments}):\n    return {' and '.join(tests) or 'True'}\n", names)
    return names["same"]


def laid(x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """It with these strides: a view where only dimensions of 1 have others."""
    if all(n == 1 or a == b for n, a, b in zip(x.shape, x.stride(), strides)):
        return x.as_strided(x.shape, strides)
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)


def group_norm(x: torch.Tensor, *args) -> tuple:
    """torch.native_group_norm, which a GPU has for row-major tensors alone, of a tensor in any layout, which its result
    has too."""
    if not x.is_cuda or x.is_contiguous():
        return torch.native_group_norm(x, *args)
    y, *moments = torch.native_group_norm(x.contiguous(), *args)
    return torch.empty_like(x).copy_(y), *moments


class Attributes:
    """The tensors of a module that are neither parameters nor buffers, as a table. It holds the module, whose own
    dictionary a copy of the module would not share."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    def __getitem__(self, key: str) -> torch.Tensor:
        return vars(self.module)[key]

    def __setitem__(self, key: str, value: torch.Tensor) -> None:
        vars(self.module)[key] = value

    def get(self, key: str):
        return vars(self.module).get(key)

    def items(self) -> list[tuple[str, torch.Tensor]]:
        return [(key, value) for key, value in vars(self.module).items() if isinstance(value, torch.Tensor)]


def slot_of(model: torch.nn.Module, target: str) -> tuple[dict | Attributes, str]:
    """Where the tensor of that dotted name is found at each call. AttributeError: there is none."""
    path, _, key = target.rpartition(".")
    module = model.get_submodule(path)
    for table in (module._parameters, module._buffers, Attributes(module)):
        if key in dict(table.items()):
            return table, key
    raise AttributeError(f"{target} is no tensor of the model")


@functools.cache
def flat_tuple(n: int) -> pytree.TreeSpec:
    """Of n values in a tuple."""
    return pytree.tree_structure((0,) * n)


class Fast:
    """model: whose forward it is. forward: the original. plan, prepare: the functions of a program; plan None: the
    original itself. slots: where the plan's first inputs are, as (table, key); constants: which of them `prepare`
    takes; updated: which of them the plan changes. users: which leaves of a call the plan takes after them. args,
    kwargs: a call of the kind that the plan is for. states: attributes that are leaves of a call too, behind its own,
    and that the plan's last outputs replace."""

    def __init__(
        self,
        model: torch.nn.Module,
        forward: Callable,
        plan: Callable[..., list] | None,
        prepare: Callable[..., list] | None,
        slots: Sequence[tuple[dict | Attributes, str]],
        constants: Sequence[int],
        updated: Sequence[int],
        passed: Sequence[int],
        users: Sequence[int],
        args: tuple,
        kwargs: dict,
        out_spec: pytree.TreeSpec | None,
        graphed: bool,
        states: Sequence[tuple[dict | Attributes, str]] = (),
    ) -> None:
        self.model, self.forward, self.plan, self.prepare = model, forward, plan, prepare
        self.slots, self.constants, self.updated = list(slots), list(constants), list(updated)
        self.passed, self.users, self.graphed = list(passed), list(users), graphed
        leaves, self.in_spec = pytree.tree_flatten((args, kwargs))
        self.states = list(states)
        self.same = _guard([*leaves, *(table[key] for table, key in states)])
        self.n = len(leaves)
        self.words = tuple(kwargs)
        self.flat = len(args) + len(kwargs) == len(leaves)
        self.leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.device = next((leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)), torch.device("cpu"))
        self.cuda = self.device.type == "cuda"
        self.state = state(self.cuda)
        self.modes = [m for m in model.modules() if m is model or _matters(m)]
        self.training = [m.training for m in self.modes]
        self._gives(out_spec)
        self.kinds = [(t.dtype, t.shape, t.stride(), t.device) for t in self._tensors()]
        self.addresses: list[int] | None = None  # of the slots' tensors, for which all below was made
        self.versions: list[int] = []
        self.held: list[torch.Tensor] = []  # the constants', so that no other tensor can be where they are
        self.given: list = []  # what the plan takes before the users' tensors
        self.replay: Replay | None = None
        self.again: Callable | None = None  # all of a call that is like the last one, in C
        self.seen: list | None = None  # what that was made for

    def __getstate__(self) -> dict:  # a copy makes its own
        return {
            **self.__dict__,
            "replay": None,
            "addresses": None,
            "given": [],
            "held": [],
            "again": None,
            "seen": None,
        }

    def _tensors(self) -> list[torch.Tensor]:
        return [table[key] for table, key in self.slots]

    def __call__(self, *args, **kwargs):
        made = self.results(args, kwargs)
        return self.forward(*args, **kwargs) if made is None else made[0]

    def results(self, args: tuple, kwargs: dict) -> tuple | None:
        """(the result,); None: the call is not of the plan's kind."""
        again = self.again
        if again is not None and tuple(kwargs) == self.words:
            made = again(*args, *kwargs.values())
            if made is not NotImplemented:
                return (made,)
        if self.flat:
            if tuple(kwargs) != self.words or len(args) + len(kwargs) != self.n:
                return None
            leaves: Sequence = (*args, *kwargs.values())
        else:
            leaves, spec = pytree.tree_flatten((args, kwargs))
            if spec != self.in_spec:
                return None
        if self.states:
            leaves = [*leaves, *(table.get(key) for table, key in self.states)]
        if not (self.same(*leaves) and plain() and state(self.cuda) == self.state and self._fits(leaves)):
            return None
        try:
            tensors = self._tensors()
            addresses = [t.data_ptr() for t in tensors]
        except (AttributeError, KeyError):  # an attribute is no tensor any more
            return None
        if addresses != self.addresses or (self.prepare and self._versions(tensors) != self.versions):
            if [(t.dtype, t.shape, t.stride(), t.device) for t in tensors] != self.kinds:
                self.addresses, self.held = None, []
                return None
            self._renew(tensors, addresses)
        values = [leaves[k] for k in self.users]
        replay = self.replay
        outputs = self._direct(*values) if replay is None else replay(values)
        for table, key in reversed(self.states):
            table[key] = outputs.pop()
        seen = self.given if replay is None else replay.instances
        if self.seen is not seen:
            self.seen, self.again = seen, self._again(tuple(leaves), replay)
        return (self._result(outputs),)

    def _again(self, leaves: tuple, replay: Replay | None) -> Callable | None:
        """A function of a call's leaves for calls like this one. It answers NotImplemented to other calls. None: the
        calls of this plan have no such function, or its replay has no graph yet."""
        if not self.flat or self.states:
            return None
        graphs = (None,) * 5 if replay is None else replay.parts()
        if graphs is None:
            return None
        switches = _switches(self.cuda)
        if self.cuda:
            switches.append(torch._C._cuda_isCurrentStreamCapturing)
        spec = self.out_spec
        finish: Callable | None = None if spec is None or spec.is_leaf() else self._result
        if spec is not None and spec == flat_tuple(spec.num_leaves):
            finish = tuple
        try:
            return _fast.plan(
                leaves, tuple(self.leaves), self.users,
                finish=finish,
                run=self._direct if self.plan is None else functools.partial(self.plan, *self.given), graphs=graphs,
                slots=self.slots, addresses=self.addresses or (), constants=self.constants if self.prepare else (),
                versions=self.versions, modules=self.modes, training=self.training, switches=switches,
            )  # fmt: skip
        except RuntimeError:  # a switch that refuses to be read, see `state`
            return None

    def _fits(self, leaves: Sequence) -> bool:
        if [m.training for m in self.modes] != self.training:
            return False
        if not torch.is_grad_enabled():
            return True
        return not (
            any(t.requires_grad for t in self._tensors())
            or any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
        )

    def _versions(self, tensors: list) -> list[int]:
        return [0 if tensors[k].is_inference() else tensors[k]._version for k in self.constants]

    def _renew(self, tensors: list, addresses: list[int]) -> None:
        """Constants again from the parameters, and graphs of their addresses."""
        self.replay = self.again = self.seen = None
        with torch.inference_mode(False), torch.no_grad():
            versions, given = self._versions(tensors), [tensors[k] for k in self.passed]
            if self.prepare:
                given += self.prepare(*(tensors[k] for k in self.constants))
        self.held = [tensors[k].detach() for k in self.constants]
        self.given = given  # at once: other threads read it
        self.addresses, self.versions = addresses, versions
        if self.graphed:
            self.replay = Replay(self._direct, self.device, [tensors[k] for k in self.updated])

    def _direct(self, *values) -> list:
        if self.plan is not None:
            return self.plan(*self.given, *values)
        leaves = list(self.leaves)
        for k, value in zip(self.users, values):
            leaves[k] = value
        args, kwargs = pytree.tree_unflatten(leaves, self.in_spec)
        outputs, spec = pytree.tree_flatten(_objects.held(self.forward(*args, **kwargs)))
        if spec != self.out_spec:
            self._gives(spec)
        return outputs

    def _gives(self, spec: pytree.TreeSpec | None) -> None:
        self.out_spec = spec
        self.objects = spec is not None and _objects.are_in(pytree.tree_unflatten([0] * spec.num_leaves, spec))

    def _result(self, outputs: list):
        spec = self.out_spec
        if spec is None or spec.is_leaf():
            return outputs[0]
        if spec == flat_tuple(len(outputs)):
            return tuple(outputs)
        made = pytree.tree_unflatten(outputs, spec)
        return _objects.built(made) if self.objects else made


class Rebuilt:
    """What an exported file's ModelNew calls: it becomes a Fast at the first call of the kind that the file was made
    for; other calls, modes and devices run the module's own forward. passed, prepared_from, updated: dotted names.
    example: of each leaf of a call, and of each state behind them, (dtype, shape, strides), or the value itself;
    attributes: the same of the module's other tensors that are neither parameters nor buffers."""

    def __init__(
        self,
        plan: Callable[..., list] | None,
        prepare: Callable[..., list] | None,
        passed: Sequence[str],
        prepared_from: Sequence[str],
        updated: Sequence[str],
        constants: dict[str, torch.Tensor],
        attributes: dict[str, tuple],
        users: Sequence[int],
        example: Sequence,
        training: Sequence[bool] | bool,
        device: str,
        several: bool,
        graphed: bool,
        states: Sequence[str] = (),
    ) -> None:
        self.plan, self.prepare, self.names = plan, prepare, (passed, prepared_from, updated)
        self.constants, self.attributes, self.users, self.example = constants, attributes, users, example
        self.training, self.device, self.several, self.graphed = training, device, several, graphed
        self.states = states
        self.fast: Fast | None = None

    def __call__(self, model: torch.nn.Module, forward: Callable, args: tuple, kwargs: dict):
        if self.fast is None or self.fast.forward != forward:
            if not self._fits(model, args, kwargs):
                return forward(*args, **kwargs)
            self.fast = self._build(model, forward, args, kwargs)
        made = self.fast.results(args, kwargs)
        return forward(*args, **kwargs) if made is None else made[0]

    def _fits(self, model: torch.nn.Module, args: tuple, kwargs: dict) -> bool:
        if (
            kwargs
            or len(args) + len(self.states) != len(self.example)
            or not plain()
            or state(self.device == "cuda")[0] is not None
        ):
            return False
        try:  # the first forward may move or replace them
            tensors = [table[key] for table, key in (slot_of(model, name) for name in [*self.states, *self.attributes])]
        except AttributeError:
            return False
        for value, want in zip([*args, *tensors], [*self.example, *self.attributes.values()]):
            if isinstance(want, tuple):
                if type(value) not in _KINDS or (value.dtype, tuple(value.shape), value.stride()) != want:
                    return False
                if value.device.type != self.device:
                    return False
            elif type(value) is not type(want) or value != want:
                return False
        modes = [module.training for module in model.modules()]
        return modes == (self.training if isinstance(self.training, list) else [self.training] * len(modes))

    def _build(self, model: torch.nn.Module, forward: Callable, args: tuple, kwargs: dict) -> Fast:
        passed, prepared_from, updated = self.names
        every = list(dict.fromkeys([*passed, *prepared_from, *updated]))
        device = next(value.device for value in args if isinstance(value, torch.Tensor))
        constants = {name: tensor.to(device) for name, tensor in self.constants.items()}
        slots: list[tuple[dict | Attributes, str]] = [
            (constants, name) if name in constants else slot_of(model, name) for name in every
        ]
        if self.plan is None:  # graphs hold the addresses of all
            slots = [
                (table, key) for m in model.modules() for table in (m._parameters, m._buffers, Attributes(m))
                for key, value in table.items() if value is not None
            ]  # fmt: skip
        spec = flat_tuple(self.several) if self.several else None
        return Fast(
            model, forward, self.plan, self.prepare, slots,
            constants=[every.index(name) for name in prepared_from], updated=[every.index(name) for name in updated],
            passed=[every.index(name) for name in passed], users=self.users, args=args, kwargs=kwargs, out_spec=spec,
            graphed=self.graphed, states=[slot_of(model, name) for name in self.states],
        )  # fmt: skip
