# SPDX-License-Identifier: Apache-2.0
"""Holds every Python file of the tree against ruff's rules and layout, with the settings of pyproject.toml."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytest.importorskip("ruff")


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=["rules", "layout"])
def test_ruff(command):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command, "."],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
