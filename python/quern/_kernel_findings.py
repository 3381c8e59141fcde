# SPDX-License-Identifier: Apache-2.0
"""What the latest checked launch of this thread found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from ctypes import byref, c_uint32

from . import _kernel_abi as abi
from ._abi import sized
from ._library import KernelError


class FindingsWarning(UserWarning):
    """The findings of a launch with check="warn": `findings` lists them (quern.Finding), the first one is the sentence;
    `outputs` are the launch's."""

    def __init__(self, sentence: str, findings: tuple[Finding, ...] = (), outputs: list | None = None) -> None:
        super().__init__(sentence)
        self.findings, self.outputs = findings, outputs


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


def kinds_of(name: str, ignore: object) -> int:
    """Kinds of findings as the library's bits. ValueError: there is no such kind."""
    given = ignore if isinstance(ignore, Iterable) and not isinstance(ignore, str) else [ignore]
    wanted = [kind for kind in given if kind is not None]
    names = [kind for kind in wanted if isinstance(kind, str)]
    if len(names) < len(wanted):
        raise TypeError(f"{name}: ignore is {ignore!r}; it must be a kind of findings or a list of kinds")
    if not names:
        return 0
    bits = c_uint32()
    try:
        abi.lib.qn_finding_kinds(",".join(names).encode(), byref(bits))
    except ValueError as error:
        raise ValueError(f"{name}: ignore: {error}") from None
    return bits.value


def warning_of(error: KernelError) -> FindingsWarning | None:
    """The findings of a launch that came to its end, as a warning; None where it did not, or nothing was found."""
    if not error.findings or any(finding.kind == "time limit" for finding in error.findings):
        return None
    more = len(error.findings) - 1
    others = f"\n(and {more} more: quern.findings())" if more else ""
    return FindingsWarning(f"{error}{others}", error.findings, error.outputs)
