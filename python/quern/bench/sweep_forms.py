# SPDX-License-Identifier: Apache-2.0
"""A random problem (`quern bench OP --random N --list`) as PyTorch's users write it: tensors of the problem's shapes,
types and layout, quern's call, and the calls beside it. `check` holds quern's result against float64. Nothing is timed
here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

import quern

from . import single

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}  # a rounding, at most
MOST_COMPILED = 12  # tensors of a list that torch.compile is asked for: more take minutes
Call = Callable[[], Any]


class Form:
    """Of one problem. `calls` by name, quern's first; `overwriting`: those before which restore() goes."""

    def __init__(self, problem: dict, device: torch.device) -> None:
        self.problem, self.device = problem, device
        self.generator = torch.Generator(device=device).manual_seed(problem["number"] + 1)
        self.calls: dict[str, Call] = {}
        self.overwriting: set[str] = set()
        self.settings: dict[str, Any] = {name: _value(text) for name, text in problem["settings"].items()}
        self.bytes = problem["bytes"]
        self.set_up()
        copy = single.Copy(self.bytes, device)
        self.calls["copy"] = copy.run

    def set_up(self) -> None:
        raise NotImplementedError

    def check(self) -> str:
        """What is wrong, or ""."""
        raise NotImplementedError

    def restore(self) -> None:
        pass

    def around(self, name: str) -> None:
        """What must hold while the call of that name runs."""

    def draw(self, shape, dtype: str, scale: float = 1.0) -> torch.Tensor:
        """Normal numbers in the problem's layout."""
        shift, apart = self.problem["shift"], self.problem["apart"]
        strides: list[int] = []
        pitch = 1
        for d in reversed(range(len(shape))):
            strides.insert(0, pitch)
            pitch *= shape[d] + (apart if len(shape) > 1 and d == len(shape) - 1 else 0)
        memory = torch.empty(pitch + shift, dtype=DTYPES[dtype], device=self.device)
        memory.normal_(0.0, scale, generator=self.generator)
        return memory.as_strided(tuple(shape), tuple(strides), shift)


def _value(text: str) -> object:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number == int(number) else number


def _compiled(formula: Callable) -> Callable:
    return torch.compile(formula, fullgraph=True, dynamic=False)


def _farthest(got: torch.Tensor, want: torch.Tensor, allowed: torch.Tensor) -> str:
    over = (got.double() - want).abs() / allowed
    over = torch.where(got.double() == want, torch.zeros_like(over), over)
    if not over.numel() or bool((over <= 1).all()):
        return ""
    at = int(torch.nan_to_num(over, nan=math.inf).argmax())
    return (
        f"{float(got.reshape(-1)[at]):.9g} at {at} and not {float(want.reshape(-1)[at]):.9g}, "
        f"{float(over.reshape(-1)[at]):.3g} times what may be"
    )


# ---- gated activations ----
def gated(a, b, gate, down, activation, alpha, limit):
    x = a if gate == 1.0 else a * gate
    if activation == "clamped":
        x = torch.clamp(x, max=limit)
        s, b = x * torch.sigmoid(alpha * x), torch.clamp(b, -limit, limit) + 1.0
    elif activation == "geglu":
        s = F.gelu(x, approximate="tanh")
    elif activation == "geglu_erf":
        s = F.gelu(x)
    elif activation == "reglu":
        s = F.relu(x)
    elif activation == "glu":
        s = torch.sigmoid(x)
    else:
        s = F.silu(x)
    c = s * b
    return c if down == 1.0 else c * down


class Swiglu(Form):
    def set_up(self) -> None:
        s = self.settings
        self.kind = s.get("activation", "swiglu")
        self.gate, self.down = float(s.get("gate_multiplier", 1.0)), float(s.get("down_multiplier", 1.0))
        self.arguments = (self.gate, self.down, self.kind, 1.702, 7.0)
        self.shape = self.problem["shapes"][0]
        self.a = self.draw(self.shape, self.problem["roles"]["a"], 2.0)
        self.b = self.draw(self.shape, self.problem["roles"]["a"])
        self.make_calls()

    def make_calls(self) -> None:
        a, b, arguments, compiled = self.a, self.b, self.arguments, _compiled(gated)
        own = {"activation": self.kind}
        self.calls["quern"] = lambda: quern.swiglu(a, b, self.gate, self.down, **own)
        self.calls["eager"] = lambda: gated(a, b, *arguments)
        self.calls["compile"] = lambda: compiled(a, b, *arguments)

    def _up(self) -> torch.Tensor:
        b = self.b.double()
        return (torch.clamp(b, -7, 7) + 1 if self.kind == "clamped" else b).abs()

    def check(self) -> str:
        a, b = self.a.double(), self.b.double()
        want = gated(a, b, *self.arguments)
        size = (1 + (a * self.gate).abs()) ** 2 * self._up() * self.down
        allowed = 4 * UNIT[self.a.dtype] * want.abs() + 2.0**-16 * size + torch.finfo(self.a.dtype).tiny
        return _farthest(self.calls["quern"](), want, allowed)


class SwigluBackward(Swiglu):
    def make_calls(self) -> None:
        self.dc = self.draw(self.shape, self.problem["roles"]["a"])
        self.kept = self.a.clone(), self.b.clone()
        dc, a, b, own = self.dc, self.a, self.b, {"activation": self.kind}
        in_place = "da" not in self.problem["roles"]
        self.leaves = [self.draw(self.shape, self.problem["roles"]["a"]).copy_(x) for x in self.kept]
        for leaf in self.leaves:
            leaf.requires_grad_()
        self.calls["quern"] = lambda: quern.swiglu_backward(dc, a, b, self.gate, in_place=in_place, **own)
        if in_place:
            self.overwriting.add("quern")
        self.calls["eager"] = self._backward(gated)
        self.calls["compile"] = self._backward(_compiled(gated))

    def _backward(self, formula: Callable) -> Call:
        made: list[torch.Tensor] = []

        def run():
            if not made:
                with torch.enable_grad():
                    made.append(formula(*self.leaves, *self.arguments))
            return torch.autograd.grad(made[0], self.leaves, self.dc, retain_graph=True)

        return run

    def restore(self) -> None:
        self.a.copy_(self.kept[0])
        self.b.copy_(self.kept[1])

    def check(self) -> str:
        leaves = [x.double().requires_grad_() for x in self.kept]
        with torch.enable_grad():
            made = gated(leaves[0], leaves[1], *self.arguments)
        dc, x = self.dc.double(), self.kept[0].double() * self.gate
        wants = torch.autograd.grad(made, leaves, dc)
        size = (1 + x.abs()) ** 2 * dc.abs() * (1 + self.gate)
        unit, up = UNIT[self.a.dtype], self._up()
        self.restore()
        for name, got, want, by in zip(("da", "db"), self.calls["quern"](), wants, (up, 1.0)):
            allowed = 5 * unit * want.abs() + 2.0**-15 * size * by + torch.finfo(self.a.dtype).tiny
            wrong = _farthest(got, want, allowed)
            if wrong:
                return f"{name}: {wrong}"
        return ""


# ---- products ----
ACTIVATIONS: dict[str, Callable] = {
    "none": lambda v: v,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda v: F.gelu(v, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
PRODUCT_UNIT = {
    "fp32": 2.0**-23,
    "tf32": 2.0**-11,
    "bf16x3": 2.0**-15,
    "tf32x3": 2.0**-20,
    "f16x3": 2.0**-20,
    "bf16": 2.0**-8,
}


def finished(v, bias2, gamma, beta, clamp, activation, norm, groups, factor=None):
    if bias2 is not None:
        v = v + bias2
    if clamp:
        v = F.hardtanh(v)
    v = ACTIVATIONS[activation](v)
    if factor is not None:
        v = v * factor
    if norm == "group":
        return torch.group_norm(v, groups, gamma, beta, 1e-5)
    if norm == "layer":
        return F.layer_norm(v, v.shape[-1:], gamma, beta, 1e-5)
    if norm == "rms":
        v = F.rms_norm(v, v.shape[-1:], gamma, 1e-5)
        return v if beta is None else v + beta
    return v


def product(x, w, bias, bias2, gamma, beta, clamp, activation, norm, groups):
    return finished(F.linear(x, w, bias), bias2, gamma, beta, clamp, activation, norm, groups)


class GemmNorm(Form):
    vectors: ClassVar[tuple[str, ...]] = ("bias", "bias2", "gamma", "beta")

    def set_up(self) -> None:
        p, s = self.problem, self.settings
        self.precision = str(s.get("precision", "fp32"))
        self.rest: Any = (
            bool(s.get("clamp", 1)),
            str(s.get("activation", "mish")),
            str(s.get("norm", "group")),
            int(s.get("groups", 1)),
        )
        shapes, kind = p["shapes"], p["roles"]["x"]
        self.x = self.draw(shapes["x"], kind)
        self.w = self.draw(shapes["w"], kind, max(1, shapes["w"][1]) ** -0.5)
        # Of 16-bit data PyTorch's norms take 16-bit vectors: ours are the same numbers.
        drawn = {n: self.draw(shapes[n], kind) if n in shapes else None for n in self.vectors}
        self.others: tuple[Any, ...] = tuple(drawn.values())
        self.own = tuple(None if v is None else v.float() for v in self.others)
        clamp, activation, norm, groups = self.rest
        words = {"groups": groups, "clamp": clamp, "activation": activation, "norm": norm, "precision": self.precision}
        x, w, compiled = self.x, self.w, _compiled(product)
        self.calls["quern"] = lambda: quern.gemm_norm(x, w, *self.own, **words)
        self.calls["eager"] = lambda: product(x, w, *self.others, *self.rest)
        self.calls["compile"] = lambda: compiled(x, w, *self.others, *self.rest)

    def around(self, name: str) -> None:
        """PyTorch's class: of bf16 the nearest that it has for float32 tensors; three products are as good as fp32."""
        loose = self.precision in ("tf32", "bf16") and self.device.type == "cuda"
        torch.backends.cuda.matmul.allow_tf32 = loose and name != "quern"

    def check(self) -> str:
        """The error may be some times that of a product whose sums are off by their rounding's size, and of activations
        off by theirs, in either direction: what a norm makes of both is found by trying."""
        x, w = self.x.double(), self.w.double()
        vectors: Any = [None if v is None else v.double() for v in self.others]
        exact = F.linear(x, w, vectors[0])
        bias2, gamma, beta = vectors[1:]
        clamp, activation, norm, groups = self.rest
        want = finished(exact, bias2, gamma, beta, clamp, activation, norm, groups)
        unit = PRODUCT_UNIT[self.precision] + 2.0**-24 * x.shape[-1] ** 0.5  # a sum's roundings grow as it does
        size = unit * ((x * x) @ (w * w).T).sqrt() + 2.0**-22 * exact.abs()
        moved = torch.zeros_like(want)
        for _ in range(3):
            a, b = (torch.empty_like(exact).uniform_(-1, 1, generator=self.generator).sign_() for _ in range(2))
            v, factor = exact + size * a, 1 + 2.0**-22 * b
            found = finished(v, bias2, gamma, beta, clamp, activation, norm, groups, factor)
            moved = torch.maximum(moved, (found - want).abs())
        most = want.abs().amax(-1, keepdim=True)
        allowed = 12 * moved.amax(-1, keepdim=True) + (2.0**-20 + 4 * UNIT[self.x.dtype]) * most + 1e-30
        return _farthest(self.calls["quern"](), want, allowed.expand_as(want))


# ---- Lion ----
def lion_step(weights, momenta, grads, lr, beta1, beta2, keep, cautious):
    u = torch._foreach_mul(momenta, beta1)
    torch._foreach_add_(u, grads, alpha=1 - beta1)
    torch._foreach_sign_(u)
    if cautious:
        masks = [(d * g > 0).to(d.dtype) for d, g in zip(u, grads)]
        u = [d * (m * (m.numel() / m.sum().clamp(min=1))) for d, m in zip(u, masks)]
    torch._foreach_mul_(weights, keep)
    torch._foreach_add_(weights, u, alpha=-lr)
    torch._foreach_mul_(momenta, beta2)
    torch._foreach_add_(momenta, grads, alpha=1 - beta2)


class Lion(Form):
    LR, BETA1, BETA2 = 1e-4, 0.9, 0.99

    def set_up(self) -> None:
        shapes, roles, s = self.problem["shapes"], self.problem["roles"], self.settings
        scales = {"param": 0.02, "grad": 1e-3, "momentum": 1e-3, "master": 0.02}
        self.of = {role: [self.draw(shape, kind, scales[role]) for shape in shapes] for role, kind in roles.items()}
        self.weights = self.of.get("master", self.of["param"])
        self.wd, self.sign = float(s.get("weight_decay", 0)), -1.0 if s.get("maximize", 0) else 1.0
        self.cautious = bool(s.get("cautious", 0))
        power = {"lr": self.LR, "relative": self.LR, "squared": self.LR**2}[str(s.get("decay", "lr"))]
        self.keep = 1 - self.wd * power
        lists = (self.of["param"], self.of["grad"], self.of["momentum"])
        words = {name: bool(v) if name in ("maximize", "cautious") else v for name, v in s.items()}
        self.calls["quern"] = lambda: quern.lion_(*lists, lr=self.LR, masters=self.of.get("master"), **words)
        stochastic = "stochastic" in (s.get("rounding"), s.get("momentum_rounding"))
        if not stochastic:  # which PyTorch's operations do not have
            self.calls["foreach"] = lambda: self._plain(lion_step)
            if len(shapes) <= MOST_COMPILED:
                compiled = _compiled(lion_step)
                self.calls["compile"] = lambda: self._plain(compiled)
        self.bytes = sum(
            sum(t.numel() for t in tensors) * tensors[0].element_size() * (1 if role == "grad" else 2)
            for role, tensors in self.of.items()
        ) - (sum(t.numel() * t.element_size() for t in self.of["param"]) if "master" in self.of else 0)

    def _plain(self, formula: Callable) -> None:
        grads = self.of["grad"] if self.sign > 0 else torch._foreach_neg(self.of["grad"])
        formula(self.weights, self.of["momentum"], grads, self.LR, self.BETA1, self.BETA2, self.keep, self.cautious)
        if "master" in self.of:
            torch._foreach_copy_(self.of["param"], self.of["master"])

    def check(self) -> str:
        was = {role: [t.double() for t in tensors] for role, tensors in self.of.items()}
        self.calls["quern"]()
        for k, (g, m) in enumerate(zip(was["grad"], was["momentum"])):
            p, g = was["master" if "master" in was else "param"][k], self.sign * g
            d = self.BETA1 * m + (1 - self.BETA1) * g
            step = d.sign()
            if self.cautious:
                agree = step * g > 0
                step = step * agree * (agree.numel() / max(1, int(agree.sum())))
            unsure = d.abs() <= 2.0**-20 * (m.abs() + g.abs())
            for role, want in (
                ("momentum", self.BETA2 * m + (1 - self.BETA2) * g),
                ("master" if "master" in was else "param", self.keep * p - self.LR * step),
            ):
                got = self.of[role][k]
                allowed = 2.01 * UNIT[got.dtype] * want.abs() + 2.0**-20 * (m.abs() + p.abs()) + 1e-12
                if self.cautious:
                    allowed = allowed + 0.01 * self.LR * step.abs()
                if role != "momentum":
                    allowed = torch.where(unsure, allowed + 3 * self.LR * (1 + step.abs()), allowed)
                if got.dtype is not torch.float32:
                    allowed = allowed + torch.finfo(got.dtype).tiny
                wrong = _farthest(got, want, allowed)
                if wrong:
                    return f"{role} of tensor {k}: {wrong}"
        return ""


FORMS: dict[str, type[Form]] = {
    "gemm_norm": GemmNorm,
    "lion": Lion,
    "swiglu": Swiglu,
    "swiglu_backward": SwigluBackward,
}
