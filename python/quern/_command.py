# SPDX-License-Identifier: Apache-2.0
"""Finds the command `quern` of this package's version, for callers that run it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sysconfig

from . import _library


class CommandError(Exception):
    """The command is missing or refuses. `status` is its exit status: 2 for a mistake of the caller, 3 where the
    machine lacks something, 1 for all else."""

    def __init__(self, sentence: str, status: int = 3) -> None:
        super().__init__(sentence)
        self.status = status


def environment() -> dict[str, str]:
    """Without the variables that only Python reads: the command would call them unknown."""
    return {name: value for name, value in os.environ.items() if name not in ("QUERN_LIBRARY", "QUERN_COMMAND")}


def _candidates() -> list[str]:
    """QUERN_COMMAND alone if it is set; else the folder of the package's scripts, the folders beside a library of a
    build folder or an installation, and the PATH, in this order."""
    said = os.environ.get("QUERN_COMMAND")
    if said:
        return [said]
    library = pathlib.Path(_library.path).resolve()
    beside = [library.parents[1] / "cli/quern", library.parents[1] / "bin/quern"] if len(library.parents) > 1 else []
    found = shutil.which("quern")
    return [os.path.join(sysconfig.get_path("scripts"), "quern"), *map(str, beside), *([found] if found else [])]


def find() -> str:
    """The path of the command of this package's own version. CommandError names each path that was tried."""
    tried = []
    for path in _candidates():
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            tried.append(f"{path}: not there")
            continue
        try:
            answer = subprocess.run(
                [path, "list", "--json"], capture_output=True, text=True, timeout=60, env=environment()
            )
            version = json.loads(answer.stdout)["version"]
        except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
            tried.append(f"{path}: not quern's command")
            continue
        if version == _library.version:
            return path
        tried.append(f"{path}: version {version}, the library is {_library.version}")
    raise CommandError(
        "the command quern is required; tried "
        + "; ".join(tried)
        + "; QUERN_COMMAND=/path/to/quern names another; `make build` makes one, and `pip install .` where jansson is"
    )
