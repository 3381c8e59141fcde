# SPDX-License-Identifier: Apache-2.0
"""What the benches of learned optimizers time: quern's optimizers and the materialising form in plain PyTorch, with
made weights, and how the one is checked against the other, in float64, over tensors of the same ranks. Nothing is
timed here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

from .. import _lopt_abi, _lopt_weights, _ops
from ..torch.celo2 import Celo2
from ..torch.lopt import ELO, SmallFCLopt
from ..torch.velo import VeLO
from . import materialised, materialised_celo2, materialised_velo
from .lopt_memory import free_bytes

Shapes = list[tuple[int, ...]]
RULES = {"small_fc_lopt": (SmallFCLopt, materialised.SMALL_FC), "elo": (ELO, materialised.ELO)}
OPS = (*RULES, "velo", "celo2")
_NUM_STEPS = 1000  # of VeLO, and the loss that it is given
_LOSS = 2.5
_LR = 1e-3
_CLIP = 24  # extents, where quern is checked


def elements(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes)


def made_weights(
    device: torch.device, dtype: torch.dtype = torch.float32, kind: int = _lopt_abi.SMALL_FC
) -> dict[str, Tensor]:
    """Random ones of the published shapes: a time does not depend on their values, and none are shipped."""
    generator = torch.Generator().manual_seed(11)
    size = 0.1 if kind == _lopt_abi.VELO_RNN else 0.5
    return {
        weight.name: (torch.rand(weight.shape, generator=generator) - 0.5).mul_(size).to(device, dtype)
        for weight in _lopt_weights.table(kind)
    }


def _velo_weights(device: torch.device, dtype: torch.dtype = torch.float32) -> list[dict[str, Tensor]]:
    return [made_weights(device, dtype, kind) for kind in (_lopt_abi.VELO_MLP, _lopt_abi.VELO_RNN)]


def _tensors(shapes: Shapes, device: torch.device, seed: int, scale: float) -> list[Tensor]:
    generator = torch.Generator(device=device).manual_seed(seed)
    return [torch.empty(shape, device=device).normal_(0, scale, generator=generator) for shape in shapes]


def precisions(op: str) -> tuple[str, ...]:
    """The classes of products that an op has on a GPU, its own choice first."""
    param = _ops.op(op).params.get("precision")
    return tuple(sorted(param.values, key=lambda word: word != param.default)) if param else ("fp32",)


def optimizer_of(op: str, params: Iterable[Tensor], precision: str) -> VeLO | Celo2 | SmallFCLopt | ELO:
    """quern's, with made weights and a small learning rate."""
    cpu = torch.device("cpu")
    if op == "velo":
        mlp, rnn = _velo_weights(cpu)
        return VeLO(params, mlp, rnn, _NUM_STEPS, lr=_LR)
    if op == "celo2":
        return Celo2(params, made_weights(cpu, kind=_lopt_abi.CELO2_MLP), lr=_LR, precision=precision)
    return RULES[op][0](params, made_weights(cpu), lr=_LR, precision=precision)


class Quern:
    """Steps over given gradients, of a list of shapes."""

    name = "quern"

    def __init__(self, op: str, shapes: Shapes, device: torch.device, precision: str) -> None:
        self.params = [torch.nn.Parameter(p) for p in _tensors(shapes, device, 1, 0.02)]
        for param, grad in zip(self.params, _tensors(shapes, device, 2, 1e-3)):
            param.grad = grad
        self.optimizer = optimizer_of(op, self.params, precision)
        self.loss = (torch.tensor(_LOSS, device=device),) if op == "velo" else ()

    def run(self) -> None:
        self.optimizer.step(*self.loss)


class Materialised:
    name = "materialised"

    def __init__(self, op: str, of: Quern, device: torch.device) -> None:
        self.params = [param.detach().clone() for param in of.params]
        self.grads: list[Tensor] = [param.grad for param in of.params]  # type: ignore[misc]
        self.stepper = stepper_of(op, self.params, device)

    def run(self) -> None:
        self.stepper(self.grads)


def _captured(run: Callable[[], None]) -> Callable[[], None]:
    """The same as one CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


class NewtonSchulz:
    """What optimizers of Muon's kind make orthogonal moves by, alone: five rounds for every matrix of a list, one
    after the other, as torch.optim.Muon takes them; on a GPU in a CUDA graph, so that no time is the host's."""

    def __init__(self, of: Quern, dtype: torch.dtype, device: torch.device) -> None:
        self.name = f"newton_schulz_{'bf16' if dtype == torch.bfloat16 else 'fp32'}"
        self.dtype = dtype
        self.matrices = [param.grad for param in of.params if param.dim() == 2 and param.numel()]
        self.run = _captured(self._rounds) if device.type == "cuda" else self._rounds

    def orthogonal(self, grad: Tensor) -> Tensor:
        tall = grad.shape[0] > grad.shape[1]
        x = (grad.mT if tall else grad).to(self.dtype)
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.mT
            x = torch.addmm(x, torch.addmm(a, a, a, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
        return x.mT if tall else x

    def _rounds(self) -> None:
        for grad in self.matrices:
            self.orthogonal(grad)


def stepper_of(op: str, params: list[Tensor], device: torch.device) -> Callable[[list[Tensor]], None]:
    """Steps of the materialising form over these, in their type: a function of the gradients."""
    dtype, n, taken = params[0].dtype, len(params), itertools.count()
    if op == "velo":
        mlp, rnn = _velo_weights(device, dtype)
        session = materialised_velo.Session(mlp, rnn, params, _NUM_STEPS)
        return lambda grads: session.step(grads, _LOSS, [_LR] * n, [0.0] * n)
    if op == "celo2":
        moved = materialised_celo2.Session(made_weights(device, dtype, _lopt_abi.CELO2_MLP), params)
        return lambda grads: moved.step(grads, _LR)
    weights, states = made_weights(device, dtype), [materialised.State(param) for param in params]
    return lambda grads: materialised.step(RULES[op][1], weights, params, grads, states, next(taken), _LR)


def peak_estimate(shapes: Shapes) -> int:
    """What the materialising form takes at its peak, roughly: some five copies of 39 floats of the largest tensor's
    elements, and its own state."""
    return 4 * (5 * 39 * max(elements([shape]) for shape in shapes) + 10 * elements(shapes))


def too_large(shapes: Shapes, device: torch.device) -> str:
    """Why the materialising form is not begun, or nothing."""
    needed, free = peak_estimate(shapes), free_bytes(device)
    return f"needs some {needed / 2**30:.0f} GiB, and {free / 2**30:.0f} are free" if needed > 0.9 * free else ""


def pylo() -> dict:
    """What a line says of PyLO's own."""
    try:
        why = f"version {version('pylo')} is installed; it takes its weights from a hub, and is not timed"
    except PackageNotFoundError:
        why = "not installed"
    return {"name": "pylo", "absent": why}


# ---- the check ----
def check(op: str, shapes: Shapes, device: torch.device, precision: str) -> dict:
    """quern against the materialising form in float64, three steps over the list's shapes with their extents clipped:
    within the contract's tolerance, or where products are rounded the class's share of the update's root mean
    square."""
    clipped = sorted({tuple(min(extent, _CLIP + d) for d, extent in enumerate(shape)) for shape in shapes})
    of = Quern(op, clipped, device, precision)
    params = [param.detach().double() for param in of.params]
    stepper, worst, wrong = stepper_of(op, params, device), 0.0, ""
    for taken in range(3):
        before = [param.clone() for param in params]
        grads = [param.grad.double() for param in of.params]  # type: ignore[union-attr]
        stepper(grads)
        of.run()
        for shape, got, wanted, old in zip(clipped, of.params, params, before):
            share = _share(op, got.detach().double(), wanted, old, precision, device)
            if not share <= 1 and not wrong:
                wrong = f"step {taken}, shape {shape}: off by {share:.3g} times the tolerance"
            worst = max(worst, share)
    return {"right": not wrong, "wrong": wrong, "worst_over_tolerance": min(worst, 1e30)}


# Of a move that was made orthogonal, in shares of its root mean square (src/op/celo2/README.md).
_GROWTH = {"tf32": 48.5e-3, "bf16x3": 1.94e-3, "bf16": 0.388}
_ROUNDED = {"tf32": 3e-3, "f16": 3e-3, "bf16x3": 5e-5}  # of the update's root mean square, a step


def _share(op: str, got: Tensor, wanted: Tensor, old: Tensor, precision: str, device: torch.device) -> float:
    update = wanted - old
    tolerance = 1e-6 * wanted.abs().clamp(min=1) + 1e-5 * update.abs()
    if op == "celo2" and got.dim() >= 2:
        growth = _GROWTH.get(precision, 485e-6) if device.type == "cuda" else 485e-6
        tolerance = tolerance + growth * update.square().mean().sqrt()
    elif device.type == "cuda" and precision in _ROUNDED:
        tolerance = tolerance + 3 * _ROUNDED[precision] * update.square().mean().sqrt()
    worst = float(((got - wanted).abs() / tolerance).max()) if got.numel() else 0.0
    return worst if worst == worst else float("inf")
