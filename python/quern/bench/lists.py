# SPDX-License-Identifier: Apache-2.0
"""The tensors that all peers work on in turn: one list for each role, as the op's description has them, and two sets of
gradients. That they are shared makes the comparison fairer (the same memory for all) and a large model fit; what a peer
keeps besides is its own. It makes data and judges nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch

from .._ops import Op

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_SPARSE = 1009  # every so many elements gradient and momentum are zero: where sign(0) shows


@dataclasses.dataclass
class Lists:
    """`masters` is None where the types have none. `grads` is one of two sets of gradients, `other_grads` the other."""

    op: Op
    device: torch.device
    types: dict[str, str]  # role: storage type
    params: list[torch.Tensor]
    momenta: list[torch.Tensor]
    masters: list[torch.Tensor] | None
    grads: list[torch.Tensor]
    other_grads: list[torch.Tensor]

    @property
    def elements(self) -> int:
        return sum(p.numel() for p in self.params)

    @property
    def weights(self) -> list[torch.Tensor]:
        """What the step moves: the masters where there are any."""
        return self.masters or self.params

    def of(self, role: str) -> list[torch.Tensor] | None:
        return {"param": self.params, "grad": self.grads, "momentum": self.momenta, "master": self.masters}[role]

    def fill(self, seed: int) -> None:
        """Values anew: normal, with the deviations of the op's description, and zeros of both signs in between."""
        generator = torch.Generator(device=self.device).manual_seed(seed)
        scales = {role.name: self.op.info.contents.tensors[role.index].fill_scale for role in self.op.roles}
        sets = [(self.weights, "param"), (self.momenta, "momentum"), (self.grads, "grad"), (self.other_grads, "grad")]
        for tensors, role in sets:
            for k, tensor in enumerate(tensors):
                flat = tensor.view(-1)
                flat.normal_(0.0, scales[role], generator=generator)
                if role != "param":
                    flat[k % _SPARSE :: _SPARSE] = 0.0
                    flat[k % _SPARSE :: 2 * _SPARSE] *= -1.0
        if self.masters:
            torch._foreach_copy_(self.params, self.masters)

    def swap_grads(self) -> None:
        self.grads, self.other_grads = self.other_grads, self.grads


def bytes_of(shapes: Sequence[Sequence[int]], types: dict[str, str]) -> int:
    """What make() takes of the device's memory."""
    elements = sum(torch.Size(shape).numel() for shape in shapes)
    return elements * sum(DTYPES[name].itemsize * (2 if role == "grad" else 1) for role, name in types.items())


def make(op: Op, shapes: Sequence[Sequence[int]], types: dict[str, str], device: torch.device, seed: int) -> Lists:
    """types: role: "f32", "bf16" or "f16", without the roles that are not given."""

    def empty(role: str) -> list[torch.Tensor]:
        return [torch.empty(tuple(shape), dtype=DTYPES[types[role]], device=device) for shape in shapes]

    made = Lists(
        op=op,
        device=device,
        types=types,
        params=empty("param"),
        momenta=empty("momentum"),
        masters=empty("master") if "master" in types else None,
        grads=empty("grad"),
        other_grads=empty("grad"),
    )
    made.fill(seed)
    return made


def roles_of(op: Op, types: str) -> dict[str, str]:
    """The roles of a row as the command names it ("bf16 bf16 bf16 f32": those that are given, in order)."""
    names = types.split()
    for row in op.types:
        given = {role.name: name for role, name in zip(op.roles, row) if name != "none"}
        if list(given.values()) == names:
            return given
    raise ValueError(f"{op.name} has no types {types}")


def windows(lengths: Sequence[int], budget: int, width: int = 4096) -> Iterator[tuple[int, int, int]]:
    """Parts (tensor, first element, elements) of a list that hold about `budget` elements in all: of each tensor its
    beginning and its end, and between them others, the same in every run; everything where that is no more."""
    share = max(2, budget // width // max(1, len(lengths)))
    for tensor, n in enumerate(lengths):
        if n <= share * width:
            if n:
                yield tensor, 0, n
            continue
        last, state = n - width, tensor + 1
        starts = {0, last}
        while len(starts) < share:
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            starts.add((state >> 16) % (last + 1))
        for start in sorted(starts):
            yield tensor, start, width
