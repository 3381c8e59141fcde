# SPDX-License-Identifier: Apache-2.0
"""The command line of `python -m quern.optimize`: a KernelBench file in, a file with ModelNew out. Exit status: 0 where
a file was written, 2 where the problem cannot be read or run."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys

PROGRAM = "python -m quern.optimize"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Make a faster model of a KernelBench problem: a file that defines Model, get_inputs and "
        "get_init_inputs. The file that is written defines ModelNew as well, and needs quern to run.",
        epilog="`python -m quern.kernelbench --ref-problem FILE --tgt-problem NEW.py` judges the result. Exit status: "
        "0 a file was written, 2 the problem cannot be read or run.",
    )
    add = parser.add_argument
    add("problem", metavar="FILE", help="the problem")
    add("--out", metavar="NEW.py", required=True, help="the file to write")
    add("--device", help="cpu, cuda or cuda:N; a GPU if there is one unless given")
    add(
        "--seconds",
        type=float,
        default=1.0,
        metavar="S",
        help="time for the timing of the alternatives; 1 unless given",
    )
    add("--seed", type=int, default=42, metavar="N", help="of the inputs and of the constructor; 42 unless given")
    add("--threads", type=int, default=0, metavar="N", help="of the processor; torch's unless given")
    return parser


def run(arguments: argparse.Namespace) -> int:
    import torch

    from . import _export, _problem
    from ._graph import Unplannable
    from ._model import optimize

    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device.split(":")[0] not in ("cpu", "cuda"):
        raise _problem.Bad(f"--device is {device}, it must be cpu, cuda or cuda:N")
    if device != "cpu" and not torch.cuda.is_available():
        raise _problem.Bad(f"--device is {device}, and PyTorch finds no GPU")
    if not arguments.seconds > 0:
        raise _problem.Bad(f"--seconds is {arguments.seconds}, it must be above 0")
    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
    try:
        source = pathlib.Path(arguments.problem).read_text(encoding="utf-8")
    except OSError as error:
        raise _problem.Bad(f"{arguments.problem}: {error.strerror}") from None
    except ValueError as error:
        raise _problem.Bad(f"{arguments.problem}: {error}") from None
    if os.path.exists(arguments.out) and os.path.samefile(arguments.problem, arguments.out):
        raise _problem.Bad(f"--out is {arguments.out}, the problem itself; name another file")
    problem = _problem.open_problem(source, arguments.problem, torch.device(device), arguments.seed)
    made = optimize(problem.model, problem.inputs, seconds=arguments.seconds, shapes=1)
    found = made._found[0] if made._found else None
    try:
        text = _export.module_text(source, found, made.report, problem.init)
    except Unplannable as error:
        made.report.chosen = "original"
        made.report.why.append(f"the plan cannot be written to a file: {error}")
        text = _export.module_text(source, None, made.report)
    try:
        pathlib.Path(arguments.out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _problem.Bad(f"{arguments.out}: {error.strerror}") from None
    print(made.report)
    return 0


def main(words: list[str]) -> int:
    arguments = _parser().parse_args(words)
    try:
        import torch  # noqa: F401 - a clear sentence where it is missing
    except ImportError:
        print(f"{PROGRAM}: PyTorch is wanted: pip install 'quern[torch]'", file=sys.stderr)
        return 2
    from ._problem import Bad

    try:
        return run(arguments)
    except Bad as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
