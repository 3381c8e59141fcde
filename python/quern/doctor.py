# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.doctor`: the command's examination of this machine, where the command is here, and what only Python
can tell: interpreter, package, library and whether they belong together, and the frameworks whose arrays are worked on.
It mends nothing; each line is ok or says how to mend it. Frameworks are asked in processes of their own, so that one
that crashes, or opens the GPU, does so there."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap

OK, ABSENT, MEND = "ok", "absent", "mend"
_WORDS = {OK: "ok", ABSENT: "none", MEND: "MEND"}
_COLOURS = {OK: "\033[32m", ABSENT: "\033[2m", MEND: "\033[31m"}
_COLUMN = 16
_EXIT_FAILED, _EXIT_ENVIRONMENT = 1, 3  # as the command has them
_OLDEST_TORCH = (2, 4)


class Report:
    """Lines as the command has them: a topic, what was found, and how to mend it. They are printed at once, or kept for
    JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.lines: list[dict[str, str]] = []
        self.version: str | None = None
        self.met = True
        self._is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
        self._has_colours = self._is_terminal and not os.environ.get("NO_COLOR")

    @property
    def to_mend(self) -> int:
        return sum(line["state"] == MEND for line in self.lines)

    def say(self, state: str, topic: str, text: str, mend: str | None = None) -> None:
        self.lines.append({"topic": topic, "state": state, "text": text, **({"mend": mend} if mend else {})})
        if self.as_json:
            return
        if self._is_terminal:
            width = max(shutil.get_terminal_size().columns - 1, _COLUMN + 20)
            text = textwrap.fill(text, width - _COLUMN, break_long_words=False, break_on_hyphens=False)
            text = text.replace("\n", "\n" + " " * _COLUMN)
        print(f"{self._colour(_COLOURS[state], f'{_WORDS[state]:<4}')}  {topic:<9} {text}")
        if mend:
            print(f"{'':{_COLUMN}}{self._colour(chr(27) + '[1m', mend)}", flush=True)

    def _colour(self, escape: str, text: str) -> str:
        return f"{escape}{text}\033[0m" if self._has_colours else text


# ---- this package ----
def _examine_package(report: Report):
    """The library's module, or None where it cannot be loaded."""
    executable = sys.executable or "an interpreter without a path"
    report.say(OK, "python", f"{platform.python_version()} ({platform.python_implementation()}), {executable}")
    folder = os.path.dirname(os.path.realpath(__file__))
    reinstall = "unset QUERN_LIBRARY" if os.environ.get("QUERN_LIBRARY") else "pip install --force-reinstall quern"
    try:
        from . import _library, _ops

        names = ", ".join(op.name for op in _ops.all_ops())  # builds each op's structs, which must fit
    except ImportError as error:
        report.say(OK, "package", folder)
        report.say(MEND, "library", str(error), reinstall)
        return None
    report.version = _library.version
    report.say(OK, "package", f"{folder}, ops: {names}")
    report.say(OK, "library", f"{_library.path}, version {_library.version}, every struct as this package has it")
    return _library


def find_command(library) -> str | None:
    """The command `quern`: the one built beside the library, else the one installed beside this interpreter, else the
    first on PATH."""
    candidates = [os.path.join(sysconfig.get_path("scripts"), "quern")]
    if library is not None:
        build = os.path.dirname(os.path.dirname(os.path.realpath(library.path)))
        candidates.insert(0, os.path.join(build, "cli", "quern"))
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("quern")


# ---- the command ----
def _run(words: list[str], **streams) -> subprocess.CompletedProcess:
    """The command, without the variable that is Python's own: it says so of variables that it does not know."""
    environment = {name: value for name, value in os.environ.items() if name != "QUERN_LIBRARY"}
    return subprocess.run(words, text=True, env=environment, **streams)


def _run_command(report: Report, command: str, words: list[str]) -> int:
    """Its own examination: printed as it comes, or taken over into the report. Its exit status."""
    sys.stdout.flush()
    if not report.as_json:
        return _run([command, "doctor", *words]).returncode
    done = _run([command, "doctor", *words, "--json"], stdout=subprocess.PIPE)
    try:
        theirs = json.loads(done.stdout)
    except ValueError:
        return done.returncode or _EXIT_FAILED  # it has said why on standard error
    report.lines += theirs["lines"]
    report.met = theirs["met"]
    return done.returncode


def _examine_command(report: Report, command: str | None, library) -> None:
    if command is None:
        text = "quern is neither beside this interpreter nor on PATH: this report is of Python's part only"
        report.say(ABSENT, "command", text, "pip install quern   # or put the command's folder on PATH")
        return
    done = _run([command, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = re.match(r"quern ([0-9][^\s,]*)", done.stdout)
    if not found:
        last = (done.stdout.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        report.say(MEND, "command", f"{command} does not tell its version: {last}", f"{command} --version")
    elif library is not None and found[1] != library.version:
        text = f"{command} is version {found[1]}, the library of this package {library.version}"
        report.say(MEND, "command", text, "pip install --force-reinstall quern   # or mend PATH")
    else:
        report.say(OK, "command", f"{command}, version {found[1]}")


# ---- frameworks ----
_ASK_TORCH = """
import json, sys, torch
gpus = torch.cuda.device_count() if torch.version.cuda else 0
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "gpus": gpus,
                  "threads": torch.get_num_threads(), "path": list(torch.__path__)[0]}))
"""
_ASK_OTHER = """
import importlib, json, sys
module = importlib.import_module(sys.argv[1])
print(json.dumps({"version": module.__version__, "path": list(module.__path__)[0]}))
"""


def _ask(program: str, *words: str) -> dict | str:
    """What a framework says of itself in a process of its own, or the last line of why it does not."""
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return (done.stderr.strip().splitlines() or [f"the process ended with status {done.returncode}"])[-1]


def _is_installed(name: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _gpus(library) -> tuple[int, int]:
    """(how many GPUs the library sees, the driver's CUDA version as 1000 * major + 10 * minor; 0 without one)."""
    import ctypes

    from . import _abi

    cuda, count = library.KINDS["cuda"], ctypes.c_int()
    try:
        library.lib.qn_device_count(cuda, ctypes.byref(count))
        info = _abi.sized(_abi.DeviceInfo)
        if count.value:
            library.lib.qn_device_query(_abi.Device(cuda, 0), ctypes.byref(info))
        return count.value, info.driver_version
    except RuntimeError:
        return 0, 0  # the command's report says why


def _examine_torch(report: Report, library) -> None:
    if not _is_installed("torch"):
        report.say(ABSENT, "torch", "not installed: quern.torch cannot be used", "pip install torch")
        return
    said = _ask(_ASK_TORCH)
    if isinstance(said, str):
        report.say(MEND, "torch", f"is installed and cannot be imported: {said}", "python -c 'import torch'")
        return
    built = f"CUDA {said['cuda']}" if said["cuda"] else "no CUDA"
    text = f"{said['version']}, built for {built}, {said['threads']} threads, {said['path']}"
    version = tuple(int(number) for number in re.findall(r"\d+", said["version"])[:2])
    gpus, driver = _gpus(library) if library is not None else (said["gpus"], 0)
    major = int(said["cuda"].partition(".")[0]) if said["cuda"] else 0
    if version < _OLDEST_TORCH:
        oldest = ".".join(map(str, _OLDEST_TORCH))
        report.say(MEND, "torch", f"{text}; quern.torch needs {oldest}", f"pip install 'torch>={oldest}'")
    elif gpus and not said["cuda"]:
        what = f"{text}; there are {gpus} GPUs here that it cannot use"
        report.say(MEND, "torch", what, "pip install torch   # from an index with CUDA")
    elif driver and major > driver // 1000:
        what = f"{text}; the driver is of CUDA {driver // 1000}.{driver % 1000 // 10}"
        report.say(MEND, "torch", what, "nvidia-smi   # then a newer driver, or a PyTorch for that CUDA")
    elif said["cuda"] and gpus != said["gpus"]:
        what = f"{text}; it sees {said['gpus']} GPUs and the library {gpus}"
        report.say(MEND, "torch", what, "python -c 'import torch; torch.zeros(1).cuda()'")
    else:
        report.say(OK, "torch", text)


def _examine_other(report: Report, name: str, without: str | None) -> None:
    """without: what cannot be done if it is missing; None: nothing that anybody would miss."""
    if _is_installed(name):
        said = _ask(_ASK_OTHER, name)
        if isinstance(said, str):
            report.say(MEND, name, f"is installed and cannot be imported: {said}", f"python -c 'import {name}'")
        else:
            report.say(OK, name, f"{said['version']}, {said['path']}")
    elif without:
        report.say(ABSENT, name, f"not installed: {without}", f"pip install {name}")


# ---- the report ----
def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m quern.doctor",
        description="Examine this machine and this installation. Each line is ok, or a repair command follows.",
        epilog="Exit status: 0 without a MEND line, 1 with one, 3 where the device of --require does not work.",
    )
    parser.add_argument(
        "--backend", metavar="cpu|cuda|emulator", help="only what this backend needs, and Python's part"
    )
    parser.add_argument(
        "--require", metavar="cpu|cuda[:N]|emulator", help="exit with 3 unless a kernel ran there with the right result"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for tools")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Prints the report; the exit status. arguments: as on the command line."""
    asked = _arguments(arguments)
    words = [f"--{name}={value}" for name, value in (("backend", asked.backend), ("require", asked.require)) if value]
    report = Report(asked.json)
    library = _examine_package(report)
    command = find_command(library)
    _examine_command(report, command, library)
    _examine_torch(report, library)
    _examine_other(report, "jax", "quern.jax cannot be used")
    _examine_other(report, "numpy", "plain arrays must come from elsewhere")
    _examine_other(report, "ml_dtypes", "NumPy has no bfloat16")
    _examine_other(report, "cupy", None)
    status = _run_command(report, command, words) if command else 0
    if report.as_json:
        whole = {"version": report.version, "met": report.met, "to_mend": report.to_mend, "lines": report.lines}
        print(json.dumps(whole, indent=2))
    if asked.require and not command:
        print(
            f"quern.doctor: only the command can say whether {asked.require} works, and it is not here", file=sys.stderr
        )
        return _EXIT_ENVIRONMENT
    if asked.require or status not in (0, _EXIT_FAILED):
        return status
    return _EXIT_FAILED if status or report.to_mend else 0


if __name__ == "__main__":
    sys.exit(main())
