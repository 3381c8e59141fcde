# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.optimize` of a folder: each problem ends by itself, and a second run continues."""

import ast
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest
from quern.bench import turns

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern.optimize import _problem  # noqa: E402

NETWORKS = sorted((pathlib.Path(__file__).parents[2] / "examples/networks").glob("*.py"))
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # of this process's quern, in each process below
PROBLEM = """
import os, signal, time, torch
from quern import _threads
assert not _threads._forked  # whose kernels have threads of their own, which come late beside PyTorch's
class Model(torch.nn.Module):
    def forward(self, x):
        {more}
        return torch.softmax(x * 2 + 1, 1).sum(1)
def get_inputs():
    return [torch.randn(8, 100)]
"""
PROBLEMS = {
    "level1/1_a.py": "pass",
    "level1/2_dies.py": "os.kill(os.getpid(), signal.SIGKILL)",
    "level1/3_hangs.py": "time.sleep(600)",
    "level2/4_b.py": "print('hello')",
    "level2/5_wrong.py": "(",
    "level3/6_c.py": "raise SystemExit('no')",
}


def test_each_problem_of_a_folder_gets_a_file_or_a_sentence(tmp_path):
    for name, more in PROBLEMS.items():
        path = tmp_path / "problems" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROBLEM.format(more=more))

    def run(*words):
        command = [sys.executable, "-m", "quern.optimize", "problems", "--out", "new", "--json", "lines.jsonl"]
        environment = {**ENVIRONMENT, "QUERN_CACHE_DIR": str(tmp_path / "cache")}  # a choice kept would not be timed
        command += ["--device", "cpu", "--seconds", "0.01", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    hangs = run("--problems", "3", "--time-limit", "3")
    assert hangs.stdout == "level 1 problem 3: no file: it took more than 3 s\n" and hangs.returncode == 2, hangs
    done = run("--jobs", "3", "--problems", "1,2,4,5,6")
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert done.returncode == 2 and len(said) == 5, done
    assert said["level 1 problem 1"].startswith("runs: ")
    assert said["level 1 problem 2"] == "no file: its process ended by signal 9"
    assert "it prints" in said["level 2 problem 4"]
    assert "5_wrong.py:" in said["level 2 problem 5"]
    assert said["level 3 problem 6"] == "no file: its process ended by status 1"
    assert {path.name for path in (tmp_path / "new").glob("*/*.py")} == {"1_a.py", "4_b.py"}
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert {line["problem"] for line in lines} == {"level1/1_a.py", "level2/4_b.py"}
    first = next(line for line in lines if line["problem"].endswith("1_a.py"))
    assert first["schema"] == "quern optimize 1" and len(first["alternatives"]["original"]["samples_ns"]) >= 11
    for option, value in (
        ("--out", "lines.jsonl"),
        ("--json", "none/lines.jsonl"),
    ):  # a file; a folder that is not there
        wrong = run(option, value)
        assert wrong.returncode == 2 and wrong.stderr.startswith(f"python -m quern.optimize: {option} is {value}: ")
    again = run("--levels", "1,2", "--problems", "1,4,5")
    assert again.stdout.splitlines() == [f"level 2 problem 5: {said['level 2 problem 5']}"] and again.returncode == 2


@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.stem)
def test_a_network_of_the_examples_is_a_problem(path):
    source = path.read_text()
    if "import transformers" in source:  # which none of the lanes has
        made = {node.name for node in ast.parse(source).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        assert made == {"Model", "get_inputs", "get_init_inputs"}
        return
    opened = _problem.open_problem(source, str(path), torch.device("cpu"), 42)
    assert not opened.model.net.training
    with torch.no_grad():
        assert opened.model(*opened.inputs).isfinite().all()


@pytest.mark.parametrize("busy", ["times", "compiles"])
def test_nobody_times_beside_another(tmp_path, busy):
    lock = str(tmp_path / "lock")
    code = "import torch, quern.torch\nfrom quern.bench.turns import Turns\n"
    code += "from quern.optimize import _timing\n"
    code += f"_timing.in_turn = Turns({lock!r})\nprint('ready', flush=True)\n"
    code += "import time; start = time.monotonic()\n"
    code += "made = quern.torch.optimize(torch.nn.Softmax(1), torch.randn(3, 5), seconds=0.01)\n"
    code += "assert 0 < _timing.in_turn.waited < time.monotonic() - start - made.report.seconds + 0.01\n"
    code += "print('timed')"
    with contextlib.ExitStack() as stack:
        other = turns.Turns(lock)
        if busy == "times":
            stack.enter_context(other())
        else:
            other.work_beside()
        words = [sys.executable, "-c", code]
        environment = {**ENVIRONMENT, "QUERN_CACHE_DIR": str(tmp_path / "cache")}  # a choice kept would not be timed
        child = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        assert child.stdout and child.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=1)
        if busy == "compiles":
            stack.enter_context(other())  # alone: nobody else compiles
    assert child.communicate()[0] == "timed\n" and child.returncode == 0


def test_jobs_compile_side_by_side_before_the_first_times(tmp_path):
    """Two that hold the lock beside each other; the turn of one waits for the other's."""
    lock = str(tmp_path / "lock")
    one, other = turns.Turns(lock), turns.Turns(lock)
    one.work_beside()
    other.work_beside()  # does not wait
    taken = []
    waiting = threading.Thread(target=lambda: taken.append(one().__enter__()))
    waiting.start()
    waiting.join(0.2)
    assert not taken
    with other():
        pass
    waiting.join(60)
    assert taken == [None] and one.waited >= 0.2 > other.waited
