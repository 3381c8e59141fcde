# SPDX-License-Identifier: Apache-2.0
"""Holds every Python file of the tree against ruff's rules and layout, and the package's annotations against mypy, with
the settings of pyproject.toml."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(tool, *arguments):
    pytest.importorskip(tool)
    done = subprocess.run(
        [sys.executable, "-m", tool, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=["rules", "layout"])
def test_ruff(command):
    run("ruff", *command, ".")


def test_mypy(tmp_path):
    # A folder of its own for what mypy remembers: nothing is written into the tree, nor believed of an earlier run.
    run("mypy", "--cache-dir", str(tmp_path), "python/quern")
