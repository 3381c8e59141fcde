# SPDX-License-Identifier: Apache-2.0
"""What users would run instead: each peer is a small class that sets itself up on the shared lists (lists.py), takes
gradients, and makes a step as its own documentation says. Lion's formula stands here as PyTorch users write it, because
these are what quern is compared with; quern's own arithmetic is in its library alone. Nothing is timed here."""

from __future__ import annotations

import importlib.metadata
from typing import ClassVar

import torch

from .. import __version__
from . import oracle
from .lists import Lists
from .oracle import Expected, Settings, Values


class Absent(Exception):
    """Why a peer does not run here: it is not installed, or does not take these types or this device."""


class Distribution:
    """What a peer comes from: `package` is what pip calls it."""

    package: ClassVar[str] = "torch"

    @classmethod
    def version(cls) -> str:
        """Raises Absent where it is not installed."""
        if cls.package == "quern":  # which runs from a tree too
            return __version__
        try:
            return importlib.metadata.version(cls.package)
        except importlib.metadata.PackageNotFoundError:
            raise Absent(f"{cls.package} is not installed") from None


class Peer(Distribution):
    """`bytes_per_element` is None for those that do the op."""

    name: ClassVar[str]
    doc: ClassVar[str]
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    bytes_per_element: ClassVar[float | None] = None

    def __init__(self, of: Lists, settings: Settings) -> None:
        """Sets up on the lists, whose params, momenta and masters the steps will update. Raises Absent."""
        if of.device.type not in self.devices:
            raise Absent(f"it runs on {' and '.join(self.devices)} only")
        self.of, self.settings = of, settings
        self.set_up()
        self.use(of.grads)

    def reference(self, found: Values, settings: Settings) -> Expected:
        return oracle.lion(found, settings)

    def set_up(self) -> None:
        raise NotImplementedError

    def use(self, grads: list[torch.Tensor]) -> None:
        """The gradients of the next steps: other tensor objects at each call, as after zero_grad()."""
        raise NotImplementedError

    def step(self) -> None:
        raise NotImplementedError


# ---- formulas of PyTorch's own operations ----
def eager_step(weights, momenta, grads, lr, beta1, beta2, keep) -> None:
    for p, m, g in zip(weights, momenta, grads):
        u = m.mul(beta1).add_(g, alpha=1 - beta1).sign_()
        p.mul_(keep).add_(u, alpha=-lr)
        m.mul_(beta2).add_(g, alpha=1 - beta2)


def foreach_step(weights, momenta, grads, lr, beta1, beta2, keep) -> None:
    u = torch._foreach_mul(momenta, beta1)
    torch._foreach_add_(u, grads, alpha=1 - beta1)
    torch._foreach_sign_(u)
    torch._foreach_mul_(weights, keep)
    torch._foreach_add_(weights, u, alpha=-lr)
    torch._foreach_mul_(momenta, beta2)
    torch._foreach_add_(momenta, grads, alpha=1 - beta2)


class Function(Peer):
    """A formula over lists; with masters these are moved and the params are copies of them."""

    formula = staticmethod(eager_step)

    def set_up(self) -> None:
        s = self.settings
        self.arguments = (s.lr, s.beta1, s.beta2, 1 - s.lr * s.weight_decay)

    def use(self, grads: list[torch.Tensor]) -> None:
        self.grads = [g.detach() for g in grads]

    def step(self) -> None:
        self.formula(self.of.weights, self.of.momenta, self.grads, *self.arguments)
        if self.of.masters:
            torch._foreach_copy_(self.of.params, self.of.masters)


class Eager(Function):
    name, doc = "eager", "a loop over the tensors, seven operations each"


class Foreach(Function):
    name, doc = "foreach", "torch._foreach_ functions over the lists"
    formula = staticmethod(foreach_step)


class Compiled(Function):
    name, doc = "compile", "torch.compile of foreach, fullgraph"

    def set_up(self) -> None:
        super().set_up()
        torch._dynamo.reset()
        self.formula = torch.compile(foreach_step, fullgraph=True)


# ---- optimizers ----
class Optimizer(Peer):
    """A torch.optim.Optimizer over params that share the lists' memory; its momentum is the lists' too."""

    key: ClassVar[str] = "exp_avg"
    takes_other_momentum: ClassVar[bool] = False  # of another type than the param

    def make(self, params: list[torch.nn.Parameter], **settings) -> torch.optim.Optimizer:
        """With lr=, betas= and weight_decay=."""
        raise NotImplementedError

    def state_of(self, momentum: torch.Tensor, index: int) -> dict:
        """The state that a first step would make for this tensor."""
        return {self.key: momentum}

    def set_up(self) -> None:
        of, s = self.of, self.settings
        if of.masters and not self.takes_other_momentum:
            raise Absent("it keeps no master copy")
        if of.types["momentum"] != of.types["param"] and not self.takes_other_momentum:
            raise Absent(f"its momentum is of the parameter's type, {of.types['param']}")
        if of.types["grad"] != of.types["param"]:
            raise Absent("PyTorch's .grad is of the parameter's type")
        self.params = [torch.nn.Parameter(p) for p in of.params]
        self.optimizer = self.make(self.params, lr=s.lr, betas=(s.beta1, s.beta2), weight_decay=s.weight_decay)
        for index, (p, m) in enumerate(zip(self.params, of.momenta)):
            self.optimizer.state[p] = self.state_of(m, index)

    def use(self, grads: list[torch.Tensor]) -> None:
        for p, g in zip(self.params, grads):
            p.grad = g.detach()

    def step(self) -> None:
        self.optimizer.step()


class Quern(Optimizer):
    name, doc, package = "quern", "quern.torch.Lion", "quern"
    takes_other_momentum = True

    def make(self, params, **settings):
        from ..torch import Lion

        master = bool(self.of.masters)
        return Lion(params, momentum_dtype=self.of.momenta[0].dtype, master_weights=master, **settings)

    def state_of(self, momentum, index):
        entries = {"momentum": momentum} | ({"master": self.of.masters[index]} if self.of.masters else {})
        return {role.framework_name: entries[role.name] for role in self.of.op.roles if role.name in entries}


class Timm(Optimizer):
    name, doc, package = "timm", "timm.optim.Lion", "timm"

    def make(self, params, **settings):
        from timm.optim.lion import Lion

        return Lion(params, **settings)


class LionPytorch(Optimizer):
    name, doc, package = "lion-pytorch", "lion_pytorch.Lion", "lion-pytorch"

    def make(self, params, **settings):
        from lion_pytorch import Lion

        return Lion(params, **settings)


class LionPytorchForeach(Optimizer):
    name, doc, package = "lion-pytorch-foreach", "lion_pytorch.foreach.Lion", "lion-pytorch"

    def make(self, params, **settings):
        from lion_pytorch.foreach import Lion

        return Lion(params, **settings)


class LionPytorchTriton(Optimizer):
    name, doc, package = "lion-pytorch-triton", "lion_pytorch.Lion(use_triton=True)", "lion-pytorch"
    devices = ("cuda",)

    def make(self, params, **settings):
        from lion_pytorch import Lion

        return Lion(params, use_triton=True, **settings)


class Bitsandbytes(Optimizer):
    name, doc, package = "bitsandbytes", "bitsandbytes.optim.Lion, 32 bits of state", "bitsandbytes"
    takes_other_momentum = True

    def make(self, params, **settings):
        if self.of.types["momentum"] != "f32" or self.of.masters:
            raise Absent("its momentum is f32, and it keeps no master copy")
        from bitsandbytes.optim import Lion

        made = Lion(params, optim_bits=32, **settings)
        made.initialized = True  # state_of() makes what its first step would
        return made

    def state_of(self, momentum, index):
        return {"step": 0, "state1": momentum}


class DeepSpeed(Optimizer):
    name, doc, package = "deepspeed", "DeepSpeed's FusedLion, or DeepSpeedCPULion", "deepspeed"
    takes_other_momentum = True

    def make(self, params, **settings):
        on_cpu, momentum = self.of.device.type == "cpu", self.of.types["momentum"]
        if self.of.masters or (not on_cpu and momentum != self.of.types["param"]):
            raise Absent("it keeps no master copy, and on a GPU its momentum is of the parameter's type")
        from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

        if on_cpu:
            return DeepSpeedCPULion(params, fp32_optimizer_states=momentum == "f32", **settings)
        return FusedLion(params, **settings)

    def state_of(self, momentum, index):
        return {"step": 0, "exp_avg": momentum}


class AdamW(Optimizer):
    """Another op: how far PyTorch's own fused list kernel comes. It reads and writes one state more."""

    name, doc = "adamw", "torch.optim.AdamW(fused=True), another op: two states"
    bytes_per_element = 28.0
    epsilon = 1e-8

    def make(self, params, **settings):
        if set(self.of.types.values()) != {"f32"}:
            raise Absent("it stands here for f32 alone")
        self.squares = [torch.full_like(p, 1e-6) for p in params]
        return torch.optim.AdamW(params, eps=self.epsilon, fused=True, **settings)

    def state_of(self, momentum, index):
        step = torch.zeros((), dtype=torch.float32, device=self.of.device)
        return {"step": step, "exp_avg": momentum, "exp_avg_sq": self.squares[index]}

    def reference(self, found: Values, settings: Settings) -> Expected:
        s, view = settings, oracle.View(self.of)
        t = 1 + int(self.optimizer.state[self.params[0]]["step"])
        momentum = s.beta1 * found.momentum + (1 - s.beta1) * found.grad
        terms = s.beta1 * found.momentum.abs() + (1 - s.beta1) * found.grad.abs()
        square = s.beta2 * view.take(self.squares).double() + (1 - s.beta2) * found.grad**2
        rate = s.lr / (1 - s.beta1**t) / ((square / (1 - s.beta2**t)).sqrt() + self.epsilon)
        keep = 1 - s.lr * s.weight_decay
        return Expected(
            weight=found.weight * keep - rate * momentum,
            weight_terms=found.weight.abs() * keep + rate * terms,
            momentum=momentum,
            momentum_terms=terms,
            # The chain from momentum and square to the weight has some 18 roundings, two for each of these; fused
            # kernels of an H200 came to 25. What is looked for is another formula, which is off by thousands.
            roundings=16,
        )


LION: dict[str, type[Peer]] = {
    peer.name: peer
    for peer in (
        Quern,
        Eager,
        Foreach,
        Compiled,
        Timm,
        LionPytorch,
        LionPytorchForeach,
        LionPytorchTriton,
        Bitsandbytes,
        DeepSpeed,
        AdamW,
    )
}
OF: dict[str, dict[str, type[Peer]]] = {"lion": LION}  # op: its peers, quern's own first
