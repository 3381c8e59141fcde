# SPDX-License-Identifier: Apache-2.0
"""SwiGLU as its users would run it instead: eager PyTorch, torch.compile, Liger's Triton kernels; each one forward and
backward over the same a, b and dc. And what it should give: the formula in float64 with the roundings to storage that
an implementation may make on the way. Nothing is timed here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import ClassVar

import torch

from .peers import Absent, Distribution

WIDTHS = (4096, 11008, 14336, 28672, 53248)  # Llama-2 7B's, Llama-3 8B's, 70B's and 405B's among them
ROWS = (1, 16, 256, 1024, 2048, 4096, 8192)  # from one token to a whole batch
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
BYTES = {"forward": 3, "backward": 5, "both": 8}  # storage units an element: what must move
DIRECTIONS = (*BYTES, "quantize")  # the forward whose result is float8_e4m3fn, with a scale computed for each row
_FLOAT8_MOST = 448.0
_UNIT = {torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
_LOOKED_AT = 1 << 21  # elements that a check compares, at most


class Data:
    """a, b and dc of one shape; a backward may write over a and b, so their first values are kept."""

    def __init__(self, rows: int, cols: int, dtype: torch.dtype, device: torch.device, gate: float, seed: int) -> None:
        generator = torch.Generator(device=device).manual_seed(seed)
        self.rows, self.cols, self.dtype, self.device, self.gate = rows, cols, dtype, device, gate
        self.a, self.b, self.dc = (
            torch.empty(rows, cols, dtype=dtype, device=device).normal_(0.0, scale, generator=generator)
            for scale in (2.0, 1.0, 1.0)
        )
        self.kept = self.a.clone(), self.b.clone()

    def bytes_of(self, direction: str) -> int:
        """What must move."""
        n, item = self.rows * self.cols, self.dtype.itemsize
        return n * (2 * item + 1) + 4 * self.rows if direction == "quantize" else n * BYTES[direction] * item

    def restore(self) -> None:
        self.a.detach().copy_(self.kept[0])
        self.b.detach().copy_(self.kept[1])


class Gated(Distribution):
    """A peer. `forward` gives c; `backward` gives (da, db), over a and b where `in_place`."""

    name: ClassVar[str]
    doc: ClassVar[str]
    in_place: ClassVar[bool] = False

    def __init__(self, of: Data) -> None:
        """Raises Absent where it does not run here or does not take these numbers."""
        self.of = of

    def forward(self) -> torch.Tensor:
        raise NotImplementedError

    def backward(self) -> tuple[torch.Tensor, torch.Tensor]:
        raise NotImplementedError

    def quantize(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(c, scale)."""
        raise Absent("it does not store float8_e4m3fn")


class Quern(Gated):
    name, doc, package = "quern", "quern.swiglu and quern.swiglu_backward over a and b", "quern"
    in_place = True

    def forward(self):
        from .. import swiglu

        return swiglu(self.of.a, self.of.b, self.of.gate)

    def backward(self):
        from .. import swiglu_backward

        return swiglu_backward(self.of.dc, self.of.a, self.of.b, self.of.gate, in_place=True)

    def quantize(self):
        from .. import swiglu

        return swiglu(self.of.a, self.of.b, self.of.gate, out_dtype="float8_e4m3fn")


def formula(a, b, gate):
    return torch.nn.functional.silu(a if gate == 1.0 else a * gate) * b


def quantized(a, b, gate):
    v = formula(a, b, gate).float()
    scale = v.abs().amax(-1, keepdim=True) / _FLOAT8_MOST
    return (v / scale).to(torch.float8_e4m3fn), scale


class Eager(Gated):
    name, doc = "eager", "silu(a) * b, and autograd's backward"
    formula, quantized = staticmethod(formula), staticmethod(quantized)

    def __init__(self, of):
        super().__init__(of)
        # The copies, which nobody writes to: autograd would refuse tensors that a backward in place had changed.
        self.a, self.b = (x.detach().requires_grad_() for x in of.kept)
        with torch.enable_grad():
            self.c = self.formula(self.a, self.b, of.gate)

    def forward(self):
        return self.formula(self.of.a, self.of.b, self.of.gate)

    def backward(self):
        return torch.autograd.grad(self.c, (self.a, self.b), self.of.dc, retain_graph=True)

    def quantize(self):
        return self.quantized(self.of.a, self.of.b, self.of.gate)


class Compiled(Eager):
    name, doc = "compile", "torch.compile of the same; after its first shape, as PyTorch does, of any shape"
    made: ClassVar[dict] = {}

    def __init__(self, of):
        importlib.import_module("torch._functorch.config").donated_buffer = False  # its backward is run again and again
        if not self.made:
            self.made["formula"] = torch.compile(formula, fullgraph=True)
            self.made["quantized"] = torch.compile(quantized, fullgraph=True)
        self.formula, self.quantized = self.made["formula"], self.made["quantized"]
        super().__init__(of)


class Liger(Gated):
    name, doc, package = "liger", "Liger's Triton kernels; the backward writes over a and b", "liger-kernel"
    in_place = True

    def __init__(self, of):
        super().__init__(of)
        if of.device.type != "cuda":
            raise Absent("its kernels run on GPUs only")
        if triton_block(of.cols) > 65536:
            raise Absent("it takes at most 65,536 columns")
        try:
            from liger_kernel.ops import swiglu
        except ImportError as error:
            raise Absent(f"it does not import: {error}") from None
        self.ops, self.words = swiglu, {} if of.gate == 1.0 else {"gate_multiplier": of.gate}

    def forward(self):
        return self.ops.swiglu_forward(self.of.a, self.of.b, **self.words)[2]

    def backward(self):
        return self.ops.swiglu_backward(self.of.a, self.of.b, self.of.dc, **self.words)


def triton_block(cols: int) -> int:
    """The next power of two."""
    return 1 << (cols - 1).bit_length()


PEERS: dict[str, type[Gated]] = {peer.name: peer for peer in (Quern, Eager, Compiled, Liger)}  # quern's own first


# ---- what it should give ----
def _worst(got: torch.Tensor, want: torch.Tensor, terms: torch.Tensor, roundings: int) -> tuple[float, str]:
    unit = _UNIT[got.dtype]
    # Of float32's own chain: exp, quotient and products, and the exponential's argument, which is 30 at most here.
    tolerance = terms * (roundings * 0.5 * unit + 64 * 2.0**-24) + 2 * torch.finfo(got.dtype).tiny
    over = (got.double() - want).abs() / tolerance
    at = int(over.argmax())
    found = float(over.view(-1)[at])
    if found == found and found <= 1:
        return found, ""
    said = f"{float(got.reshape(-1)[at]):.6g} at {at} and not {float(want.reshape(-1)[at]):.6g}"
    return found if found == found else float("inf"), said


def check(peer: Gated, of: Data) -> tuple[float, str]:
    """(worst difference over its tolerance, what is wrong or ""). Leaves a and b as they were."""
    rows = max(1, min(of.rows, _LOOKED_AT // of.cols))
    part = torch.linspace(0, of.rows - 1, rows, device=of.device).round().long()
    a, b, dc = (x.index_select(0, part).double() for x in (*of.kept, of.dc))
    x = a * of.gate
    sig = torch.sigmoid(x)
    s = x * sig
    slope = sig * (1 + x * (1 - sig))
    # Eager PyTorch rounds a * gate to the storage type: what a step of x does to the value and to the slope.
    moved = x.abs() if of.gate != 1.0 else torch.zeros_like(x)
    slope_terms = sig * (1 + x.abs() * (1 - sig))
    s_terms = s.abs() + moved * slope_terms
    slope_terms = slope_terms + moved * sig * (1 - sig) * (2 + x.abs())
    of.restore()
    worst, wrong = _worst(peer.forward().index_select(0, part), s * b, s_terms * b.abs(), 4)
    if wrong:
        return worst, f"forward: {wrong}"
    got = [x.index_select(0, part) for x in peer.backward()]
    of.restore()
    wants = {
        "da": (dc * b * slope * of.gate, (dc * b * slope_terms * of.gate).abs(), 5),
        "db": (dc * s, dc.abs() * s_terms, 4),
    }
    for (name, (want, terms, roundings)), one in zip(wants.items(), got):
        found, wrong = _worst(one, want, terms, roundings)
        worst = max(worst, found)
        if wrong:
            return worst, f"backward, {name}: {wrong}"
    return worst, ""


def check_quantize(peer: Gated, of: Data) -> tuple[float, str]:
    """As check(), of c * scale: e4m3's own rounding, and the steps before it in the storage type."""
    rows = max(1, min(of.rows, _LOOKED_AT // of.cols))
    part = torch.linspace(0, of.rows - 1, rows, device=of.device).round().long()
    a, b = (x.index_select(0, part).double() for x in of.kept)
    x = a * of.gate
    want = x * torch.sigmoid(x) * b
    c, scale = peer.quantize()
    scale = scale.reshape(of.rows, 1).index_select(0, part).double()
    got = c.view(torch.uint8).index_select(0, part).view(torch.float8_e4m3fn).double() * scale
    most = want.abs().amax(-1, keepdim=True)
    off = float(((scale * _FLOAT8_MOST - most).abs() / most).max()) / (8 * _UNIT[of.dtype] + 2.0**-18)
    if not off <= 1:
        return off, f"quantize: the scale of a row is off by {off:.3g} times what may be"
    moved = (2.0**-4 + 4 * _UNIT[of.dtype] * (1 + (x.abs() if of.gate != 1.0 else 0.0))) * want.abs()
    over = (got - want).abs() / (moved + 2.0**-10 * 1.01 * scale)
    at = int(over.argmax())
    worst = float(over.view(-1)[at])
    said = f"quantize: {float(got.view(-1)[at]):.6g} at {at} and not {float(want.view(-1)[at]):.6g}"
    return (worst, "") if worst <= 1 else (worst, said)


def call_of(peer: Gated, direction: str) -> Callable[[], object]:
    if direction == "both":

        def both():
            peer.forward()
            return peer.backward()

        return both
    return getattr(peer, direction)
