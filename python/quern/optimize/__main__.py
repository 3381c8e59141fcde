# SPDX-License-Identifier: Apache-2.0
"""The command line of `python -m quern.optimize`: a KernelBench file in, a file with ModelNew out; or a folder of them.
Exit status: 0 where a file was written for each problem, 2 where one cannot be read or run."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import typing

if typing.TYPE_CHECKING:
    import torch

    from ._report import Report

PROGRAM = "python -m quern.optimize"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Make a faster model of a KernelBench problem: a file that defines Model, get_inputs and "
        "get_init_inputs. The file that is written defines ModelNew as well, and needs quern to run. Of a folder "
        "(DIR/levelN/M_name.py) each problem gets a file of its own, in a process of its own.",
        epilog="`python -m quern.kernelbench --ref-problem FILE --tgt-problem NEW.py` judges the result; for folders "
        "`python -m quern.kernelbench run DIR --candidates NEW`. Exit status: 0 a file was written for each problem, "
        "2 a problem cannot be read or run.",
    )
    add = parser.add_argument
    add("problem", metavar="FILE|DIR", help="the problem, or a copy of KernelBench")
    add("--out", metavar="NEW", required=True, help="the file to write; for a folder, the folder")
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
    add("--compare", action="store_true", help="time torch.compile's default mode beside the alternatives")
    add("--json", metavar="FILE", help="append a line with every sample to FILE for each problem")
    folder = parser.add_argument_group("of a folder")
    add = folder.add_argument
    add("--levels", metavar="LIST", default="", help="such as 1,2; all unless given")
    add("--problems", metavar="LIST", default="", help="numbers within the levels, such as 1,23; all unless given")
    add(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="problems at a time: they compile side by side, and then verify and time in turns; 1 unless given",
    )
    add("--time-limit", type=float, default=300.0, metavar="S", help="most time of a problem; 300 unless given")
    return parser


def _checked(arguments: argparse.Namespace) -> None:
    """Sets the device. Bad: an option's value."""
    from ..kernelbench.__main__ import device_of
    from ._problem import Bad

    try:
        arguments.device = device_of(arguments.device)
    except ValueError as error:
        raise Bad(str(error)) from None
    if arguments.json:
        try:
            open(arguments.json, "ab").close()
        except OSError as error:
            raise Bad(f"--json is {arguments.json}: {error.strerror}") from None
    for name in ("seconds", "jobs", "time_limit"):
        if not getattr(arguments, name) > 0:
            raise Bad(f"--{name.replace('_', '-')} is {getattr(arguments, name)}, it must be above 0")


def optimize_file(problem: str, out: str, arguments: argparse.Namespace, name: str = "") -> Report:
    """Writes `out`; with --json, a line that calls the problem by its name. Bad: a sentence that names the problem."""
    import torch

    from . import _export, _problem
    from ._graph import Unplannable
    from ._model import optimize

    if arguments.threads > 0:
        torch.set_num_threads(arguments.threads)
    try:
        source = pathlib.Path(problem).read_text(encoding="utf-8")
    except OSError as error:
        raise _problem.Bad(f"{problem}: {error.strerror}") from None
    except ValueError as error:
        raise _problem.Bad(f"{problem}: {error}") from None
    if os.path.exists(out) and os.path.samefile(problem, out):
        raise _problem.Bad(f"--out is {out}, the problem itself; name another file")
    device = torch.device(arguments.device)
    opened = _problem.open_problem(source, problem, device, arguments.seed)
    made = optimize(opened.model, opened.inputs, seconds=arguments.seconds, shapes=1, compare=arguments.compare)
    found = made._found[0] if made._found else None
    try:
        text = _export.module_text(source, found, made.report, opened.init)
    except Unplannable as error:
        made.report.chosen = "original"
        made.report.why.append(f"the plan cannot be written to a file: {error}")
        text = _export.module_text(source, None, made.report)
    try:
        pathlib.Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise _problem.Bad(f"{out}: {error.strerror}") from None
    if arguments.json:
        _keep(name or problem, made.report, device, arguments.json)
    return made.report


def _keep(problem: str, report: Report, device: torch.device, path: str) -> None:
    import platform

    import torch

    from ..bench import stats
    from ..kernelbench import _lines

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    head = stats.head("quern optimize 1", device.type, device.index or 0, **versions)
    _lines.keep({**head, "problem": problem, **report.record()}, path)


def run(arguments: argparse.Namespace) -> int:
    from . import _folder

    if os.path.isdir(arguments.problem):
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # the other check leaves a driver that no fork can use
        _checked(arguments)
        return _folder.run(arguments)
    _checked(arguments)
    print(optimize_file(arguments.problem, arguments.out, arguments))
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
