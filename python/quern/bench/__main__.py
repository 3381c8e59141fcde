# SPDX-License-Identifier: Apache-2.0
"""The command line of `python -m quern.bench`. Exit status as the command's: 0; 1 where quern is wrong, a time is
impossible or something failed; 2 for a mistake in the arguments; 3 where this machine lacks something."""

from __future__ import annotations

import argparse
import os
import sys
import time

from .._names import nearest
from .progress import Progress

PROGRAM = "python -m quern.bench"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Hold quern's op and the other implementations of it that are installed here against a float64 "
        "oracle, then time them in turns on the same tensors, with the ceilings of this machine between them.",
        epilog="`doors` in the place of OP times what a call costs the host (doors --help), `swiglu` "
        "gated activations over rows and columns (swiglu --help), `gemm` products with an epilogue (gemm --help), "
        "`lopt` learned optimizers over models' lists (lopt --help), `heldout` how well networks are trained by one "
        "(heldout --help), `gpt` which optimizer trains a GPT best (gpt --help), `optimize` what quern.torch.optimize "
        "gains (optimize --help). "
        "A wrong implementation is told as wrong, and its time stands in brackets. docs/benchmarking.md says "
        "how all is measured; `quern report FILE --peers` makes a table of what --json keeps.",
    )

    def add(*names: str, doc: str, **more) -> None:
        parser.add_argument(*names, help=doc, **more)

    more = {"action": "append"}
    add("op", metavar="OP", nargs="?", default="lion", doc="lion unless given")
    add("--device", doc="cpu, cuda or cuda:N; a GPU if there is one unless given")
    add("--workload", "-w", metavar="NAME", doc="gpt2-124m unless given; as `quern bench` has them; repeatable", **more)
    add("--params", "-p", metavar="FILE", doc="the tensors that FILE.safetensors lists; repeatable", **more)
    add("--types", metavar="LIST", doc="by role, such as 'bf16 bf16 bf16 f32'; f32 unless given; repeatable", **more)
    add("--peers", metavar="NAMES", doc="only these beside quern, with commas between; all unless given")
    add("--seconds", type=float, metavar="S", doc="most time for the rounds of a measurement; 10 unless given")
    add("--time-budget", type=float, metavar="S", doc="most time for everything; what finds none left is named")
    add("--threads", type=int, metavar="N", doc="of the processor, for torch and quern; torch's unless given")
    add("--hot", action="store_true", doc="leave a GPU's cache as it is between steps")
    add("--quick", action="store_true", doc="few rounds: to see whether it runs, not how fast")
    add("--seed", type=int, default=1, metavar="N", doc="of the data")
    add("--json", "-j", metavar="FILE", doc="append each measurement with its raw samples as a line of JSON")
    add("--list", action="store_true", doc="list the peers and which of them are here, and measure nothing")
    return parser


def _suggest(word: str, known) -> str:
    near = nearest(word, known)
    return f"; did you mean {near}?" if near else f"; there are {', '.join(known)}"


def _fail(status: int, sentence: str) -> int:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
    return status


def _list(known) -> int:
    from .peers import Absent

    for kind in known.values():
        try:
            version = kind.version()
            state = f"{kind.package} {version}, on {' and '.join(kind.devices)}"
        except Absent as why:
            state = str(why)
        print(f"{kind.name:<21} {kind.doc}\n{'':<21}   {state}")
    return 0


def _requests(arguments: argparse.Namespace, op, device, known, progress):
    from .run import Request

    names = [name for name in (arguments.peers or ",".join(known)).split(",") if name]
    chosen = [kind for name, kind in known.items() if name == "quern" or name in names]
    workloads = [["--workload", name] for name in arguments.workload or ()]
    workloads += [["--params", path] for path in arguments.params or ()]
    seconds = arguments.seconds or (1.0 if arguments.quick else 10.0)
    for workload in workloads or [["--workload", "gpt2-124m"]]:
        for types in arguments.types or ["f32"]:
            yield Request(
                op=op,
                device=device,
                workload=workload,
                types=types,
                peers=chosen,
                seconds=seconds,
                quick=arguments.quick,
                hot=arguments.hot,
                seed=arguments.seed,
                say=progress,
            )


def _measure_all(arguments: argparse.Namespace, requests, progress: Progress) -> int:
    import dataclasses

    from . import record, table
    from .run import measure_one

    status, start = 0, time.monotonic()
    for request in requests:
        left = (arguments.time_budget or float("inf")) - (time.monotonic() - start)
        if left <= 0:
            name = f"{request.workload[1]}, types {request.types}"
            status = _fail(1, f"{name}: not measured, the {arguments.time_budget:g} s are spent")
            continue
        line = measure_one(dataclasses.replace(request, seconds=min(request.seconds, left)))
        progress.hide()
        print(table.text(line) + "\n", flush=True)
        if arguments.json:
            record.append(arguments.json, line)
        if not line["check"]["right"] or line.get("impossible"):
            status = 1
    return status


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["heldout"]:
        from . import heldout

        return heldout.main(words[1:])
    if words[:1] == ["gpt"]:
        from . import gpt

        return gpt.main(words[1:])
    if words[:1] == ["optimize"]:
        from . import optimize

        return optimize.main(words[1:])
    if words[:1] == ["doors"]:
        from .._command import CommandError
        from . import doors

        try:
            return doors.main(words[1:])
        except CommandError as error:
            return _fail(error.status, str(error))
    if any(word == "--random" or word.startswith("--random=") for word in words):
        try:
            from . import sweep
        except ImportError as error:
            return _fail(3, f"PyTorch is wanted: {error}")
        return sweep.main(words)
    if words[:1] in (["swiglu"], ["gemm"], ["lopt"]):
        try:
            from . import gemm, lopt, swiglu
        except ImportError as error:
            return _fail(3, f"PyTorch is wanted: {error}")
        return {"swiglu": swiglu, "gemm": gemm, "lopt": lopt}[words[0]].main(words[1:])
    parser = _parser()
    arguments = parser.parse_args(argv)
    for name in ("seconds", "time_budget"):
        value = getattr(arguments, name)
        if value is not None and not 0 < value <= 3600:
            parser.error(f"--{name.replace('_', '-')} is {value:g}, it must be above 0 and at most 3600")
    try:
        import torch
    except ImportError as error:
        return _fail(3, f"PyTorch is wanted: {error}")
    from .. import _ops
    from . import measure, peers
    from .command import CommandError

    try:
        op = _ops.op(arguments.op)
    except ValueError as error:
        return _fail(2, str(error))
    if op.name not in peers.OF:
        return _fail(2, f"no other implementations of {op.name} are known here; there are of {', '.join(peers.OF)}")
    known = peers.OF[op.name]
    if arguments.list:
        return _list(known)
    for name in (arguments.peers or "").split(","):
        if name and name not in known:
            return _fail(2, f"there is no peer {name}{_suggest(name, known)}")
    folder = os.path.dirname(os.path.abspath(arguments.json)) if arguments.json else "."
    if arguments.json and not os.access(arguments.json if os.path.exists(arguments.json) else folder, os.W_OK):
        return _fail(2, f"{arguments.json}: it cannot be written")
    if arguments.threads is not None:
        if arguments.threads < 1:
            return _fail(2, f"--threads is {arguments.threads}, it must be at least 1")
        torch.set_num_threads(arguments.threads)
    progress = Progress()
    try:
        device = measure.device_of(arguments.device)
        return _measure_all(arguments, _requests(arguments, op, device, known, progress), progress)
    except ValueError as error:
        return _fail(2, str(error))
    except CommandError as error:
        return _fail(error.status, str(error))
    except RuntimeError as error:
        return _fail(3, str(error))
    finally:
        progress.hide()


if __name__ == "__main__":
    sys.exit(main())
