# SPDX-License-Identifier: Apache-2.0
"""What the latest checked launch of this thread found."""

from __future__ import annotations

import dataclasses
from ctypes import byref

from . import _kernel_abi as abi
from ._abi import sized


@dataclasses.dataclass(frozen=True)
class Finding:
    """One fault of a kernel. kind: "out of bounds", "race" ...; line, other_line: of the body, from 1, None where it is
    unknown; thread, other: positions in the grid; where: which array; first, last: its bytes, None where that says
    nothing; text: the sentence."""

    kind: str
    line: int | None
    other_line: int | None
    thread: tuple[int, int, int]
    other: tuple[int, int, int]
    where: str
    first: int | None
    last: int | None
    text: str


def findings() -> tuple[Finding, ...]:
    """All that the latest checked launch of this thread found, in order; () if nothing, or before the first."""
    made = []
    for k in range(abi.lib.qn_kernel_finding_count()):
        found = sized(abi.Finding)
        abi.lib.qn_kernel_finding_at(k, byref(found))
        made.append(
            Finding(
                kind=abi.lib.qn_finding_kind_name(found.kind).decode(),
                line=found.line or None,
                other_line=found.other_line or None,
                thread=tuple(found.thread),
                other=tuple(found.other),
                where=found.where.decode(errors="replace"),
                first=None if found.first < 0 else found.first,
                last=None if found.last < 0 else found.last,
                text=found.text.decode(errors="replace"),
            )
        )
    return tuple(made)
