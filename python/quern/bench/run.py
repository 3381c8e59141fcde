# SPDX-License-Identifier: Apache-2.0
"""One measurement: one workload and one row of types, all peers. Checked, then timed, then told as a line of JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from .. import _ops
from . import lists, measure, oracle, peers, record, stats
from .command import CommandError, Companion
from .progress import waiting

WEIGHT_DECAY = 0.1  # as people use it; without one some implementations leave a pass out
MOST_CEILINGS_BYTES = 2 << 30  # that the command streams over


@dataclasses.dataclass(frozen=True)
class Request:
    op: _ops.Op
    device: torch.device
    workload: list[str]  # as arguments of the command: --workload NAME, or --params FILE
    types: str
    peers: list[type[peers.Peer]]  # quern's own first
    seconds: float  # for the rounds
    quick: bool
    hot: bool
    seed: int
    say: Callable[[str], None]  # what goes on


@dataclasses.dataclass(frozen=True)
class _Ready:
    """A peer that has been set up, and what its check found."""

    peer: peers.Peer
    check: oracle.Check


@dataclasses.dataclass
class _Entry:
    """A peer with what came of setting it up; `ready` is None where `absent` says why."""

    kind: type[peers.Peer]
    version: str = ""
    absent: str = ""
    ready: _Ready | None = None


def _companion(request: Request) -> Companion:
    device = request.device
    backend = f"cuda:{device.index or 0}" if device.type == "cuda" else device.type
    arguments = [request.op.name, *request.workload, "--backend", backend, "--types", request.types]
    arguments += ["--set", f"weight_decay={WEIGHT_DECAY}", "--threads", str(torch.get_num_threads())]
    return Companion([*arguments, "--hot"] if request.hot else arguments)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    with open("/proc/meminfo", encoding="ascii") as file:
        known = dict(line.split(":", 1) for line in file)
    return int(known["MemAvailable"].split()[0]) << 10


def _require_memory(request: Request, head: dict, types: dict[str, str]) -> None:
    """The lists, as much again as the weights for what an unfused step makes in between, AdamW's second state, and what
    the command takes."""
    of_lists = lists.bytes_of(head["shapes"], types)
    between = head["elements"] * lists.DTYPES[types.get("master", types["param"])].itemsize
    squares = between if any(kind is peers.AdamW for kind in request.peers) else 0
    ceilings = min(of_lists, MOST_CEILINGS_BYTES) + 2 * head["flush_bytes"]
    need, free = of_lists + between + squares + ceilings, _free_bytes(request.device)
    if need > 0.97 * free:
        raise CommandError(
            f"{head['op']} over {head['workload']} beside other implementations takes {need * 1e-9:.2f} GB on "
            f"{request.device}, {free * 1e-9:.2f} GB are free: choose a smaller workload",
            status=1,
        )


def _set_up(kind: type[peers.Peer], request: Request, of: lists.Lists, settings: oracle.Settings) -> _Entry:
    entry = _Entry(kind)
    try:
        with waiting(request.say, f"checking: {kind.name}"):
            version = kind.version()
            entry.version = version if kind.package == kind.name else f"{kind.package} {version}"
            peer = kind(of, settings)
            entry.ready = _Ready(peer, oracle.check(peer, of, settings))
    except peers.Absent as why:
        entry.absent = str(why)
    except Exception as error:  # whatever another project's code raises is told, and the others go on
        said = str(error).strip().splitlines() or [""]
        entry.absent = f"failed: {type(error).__name__}: {said[0][:200]}"
    if entry.ready is None or entry.ready.check.wrong:
        of.fill(request.seed)  # what it left is not for the next one
    return entry


def _time(request: Request, head: dict, live: list[peers.Peer], companion: Companion) -> measure.Session:
    hot = request.hot or head["cache"] == "hot"
    if request.device.type == "cuda":
        clock: measure.Clock = measure.CudaClock(hot, request.device, head["flush_bytes"])
    else:
        clock = measure.Clock(hot)
    session = measure.Session(clock, live, companion.round, request.say)
    session.run(
        request.seconds, least=30 if clock.is_device and not request.quick else 6 if request.quick else stats.WORD_PAIRS
    )
    return session


def measure_one(request: Request) -> dict:
    """The line. CommandError says what is missing, or what the command refuses."""
    with _companion(request) as companion, torch.no_grad():
        head = companion.head
        types = lists.roles_of(request.op, head["types"])
        _require_memory(request, head, types)
        params = head["params"]
        settings = oracle.Settings(**{f.name: params[f.name] for f in dataclasses.fields(oracle.Settings)})
        request.say("making data")
        of = lists.make(request.op, head["shapes"], types, request.device, request.seed)
        own, line = _set_up(request.peers[0], request, of, settings), record.Line(head)
        if own.ready is None:
            raise CommandError(f"{record.BY} over types {head['types']}: {own.absent}", status=1)
        if own.ready.check.wrong:
            return line.wrong(own.ready.check)
        entries = [own, *(_set_up(kind, request, of, settings) for kind in request.peers[1:])]
        session = _time(request, head, [entry.ready.peer for entry in entries if entry.ready], companion)
        ceilings = companion.end()
    times = {id(entry): taken for entry, taken in zip((entry for entry in entries if entry.ready), session.times)}
    told = [
        record.peer(line, ceilings, times[id(own)], e.kind, e.version, e.ready.check, times[id(e)])
        if e.ready
        else record.absent(e.kind.name, e.version, e.absent)
        for e in entries[1:]
    ]
    return line.timed(own.ready.check, times[id(own)], ceilings, told)
