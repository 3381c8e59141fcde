# SPDX-License-Identifier: Apache-2.0
"""The command line of `python -m quern.kernelbench`. Exit status: 0 where each candidate is correct, 1 where one is
wrong, broken or refused, 2 where a problem or the call cannot be judged."""

from __future__ import annotations

import argparse
import signal
import sys

from .._command import CommandError

PROGRAM = "python -m quern.kernelbench"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Judge PyTorch modules as KernelBench has them: is ModelNew correct, and how fast is it against "
        "the better of eager and compiled PyTorch?",
        epilog="`python -m quern.kernelbench run DIR` judges a folder of problems (run --help). docs/judging.md "
        "explains the verdicts. Exit status: 0 correct (faster, same, slower or unclear), 1 wrong, broken or refused, "
        "2 the problem or the call cannot be judged.",
    )
    add = parser.add_argument
    add("--ref-problem", metavar="FILE", required=True, help="the problem: Model, get_inputs, get_init_inputs")
    add("--tgt-problem", metavar="FILE", action="append", help="a candidate: ModelNew; repeatable")
    add("--tgt-dir", metavar="DIR", help="candidates: every **/*kernel.py of DIR")
    shared(parser)
    return parser


def shared(parser: argparse.ArgumentParser) -> None:
    """The options of both forms."""
    add = parser.add_argument
    add("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    add("--num-trials", type=int, default=100, metavar="N", help="timed calls of each model; 100 unless given")
    add("--num-warmup", type=int, default=3, metavar="N", help="calls before them; 3 unless given")
    add(
        "--seconds",
        type=float,
        metavar="S",
        help="most time for the timed calls of a candidate (30 unless given) or of baselines alone (1.5)",
    )
    add("--seed", type=int, default=42, metavar="N", help="of the inputs and of both constructors; 42 unless given")
    add("--check", choices=("quick", "full", "deep"), default="quick", help="how many draws of data verify a candidate")
    add("--tolerance", choices=("original", "current"), default="original",
        help="original: 1e-2; current: 1e-4, and 1e-2 for halves")  # fmt: skip
    add("--gradients", action="store_true", help="compare the gradients of inputs and parameters too")
    add(
        "--compile",
        metavar="MODES",
        default="default",
        help="modes of torch.compile, with commas between: default, reduce-overhead, max-autotune; none: eager alone",
    )
    add("--ceilings", metavar="FILE", help="of `quern roofline --json`; measured unless given")
    add("--threads", type=int, default=0, metavar="N", help="of the processor, for each model; torch's unless given")
    add("--memory", type=float, default=32.0, metavar="GIB", help="most memory of a model's process; 32 unless given")
    add("--time-limit", type=float, default=120.0, metavar="S", help="most time of one call; 120 unless given")
    add("--json", metavar="FILE", help="append a line for each candidate to FILE; - prints the lines alone")


def device_of(word: str | None) -> str:
    """The device of an option; a GPU if there is one where none is given. ValueError: a sentence."""
    import torch

    device = word or ("cuda" if torch.cuda.is_available() else "cpu")
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"--device is {device}, it must be cpu, cuda or cuda:N")
    if device != "cpu" and not torch.cuda.is_available():
        raise ValueError(f"--device is {device}, and PyTorch finds no GPU")
    return device


def options_of(arguments, alone: bool = False):
    """The judge's options; alone: baselines without candidates. ValueError: a sentence."""
    if arguments.seconds is None:
        arguments.seconds = 1.5 if alone else 30.0
    from . import _ceilings, _compare, _judge
    from ._process import GIB, Limits

    modes = tuple(m for m in arguments.compile.split(",") if m and m != "none")
    known = ("default", "reduce-overhead", "max-autotune")
    for mode in modes:
        if mode not in known:
            raise ValueError(f"torch.compile has no mode {mode}; there are {', '.join(known)}")
    for name, least in (("num_trials", _judge.FEWEST), ("num_warmup", 0), ("threads", 0)):
        if getattr(arguments, name) < least:
            raise ValueError(f"--{name.replace('_', '-')} is {getattr(arguments, name)}, it must be at least {least}")
    for name in ("seconds", "memory", "time_limit"):
        if not getattr(arguments, name) > 0:
            raise ValueError(f"--{name.replace('_', '-')} is {getattr(arguments, name)}, it must be above 0")
    device = device_of(arguments.device)
    if arguments.ceilings:
        try:
            _ceilings.of_file(arguments.ceilings, device)
        except OSError as error:
            raise ValueError(f"{arguments.ceilings}: {error.strerror}") from None
    memory = int(arguments.memory * GIB)
    return _judge.Options(
        device=device,
        seed=arguments.seed,
        trials=arguments.num_trials,
        warmup=arguments.num_warmup,
        seconds=arguments.seconds,
        level=arguments.check,
        tolerance=_compare.Tolerance(arguments.tolerance),
        gradients=arguments.gradients,
        compile_modes=modes,
        ceilings=arguments.ceilings or "",
        threads=arguments.threads,
        compile_limits=Limits(600, memory, 256),
        run_limits=Limits(arguments.time_limit, memory, 64),
    )


def fail(sentence: str) -> int:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
    return 2


def main(words: list[str]) -> int:
    is_run = words[:1] == ["run"]
    arguments = None if is_run else _parser().parse_args(words)
    try:
        import torch  # noqa: F401 - a clear sentence where it is missing
    except ImportError:
        return fail("PyTorch is wanted: pip install 'quern[torch]'")
    if arguments is None:
        from . import _run

        try:
            return _run.main(words[1:])
        except CommandError as error:
            return fail(str(error))
    from . import _files, _lines

    try:
        options = options_of(arguments)
        candidates = _files.candidates(arguments.tgt_problem or [], arguments.tgt_dir)
        problem = _files.readable(arguments.ref_problem)
    except ValueError as error:
        return fail(str(error))
    try:
        return _lines.judge_all([(problem, candidates)], options, arguments.json)
    except CommandError as error:
        return fail(str(error))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that folders are removed
    sys.exit(main(sys.argv[1:]))
