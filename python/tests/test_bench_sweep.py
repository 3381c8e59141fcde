# SPDX-License-Identifier: Apache-2.0
"""Random problems beside PyTorch: they are the command's own, their tensors lie as the problem says, every result is
checked before it is timed, and the end tells the worst. No time is judged."""

import json
import subprocess

import pytest

torch = pytest.importorskip("torch")

from quern.bench import __main__ as bench  # noqa: E402
from quern.bench import command, sweep, sweep_forms  # noqa: E402

CPU = torch.device("cpu")
OPS = ("gemm_norm", "lion", "swiglu", "swiglu_backward")


def drawn(op, n, *words):
    listed = [command.find(), "bench", op, "--random", str(n), "--list", *map(str, words)]
    said = subprocess.run(listed, capture_output=True, text=True, check=True, env=command.environment())
    return [json.loads(line) for line in said.stdout.splitlines()]


def run(op, *words):
    return bench.main([op, "--device", "cpu", "--no-compile", "--rounds", "6", *map(str, words)])


@pytest.mark.parametrize("op", OPS)
def test_every_problem_is_right(op):
    for problem in drawn(op, 40, "--seed", 2, "--most-bytes", 200000):
        form = sweep_forms.FORMS[op](problem, CPU)
        assert form.check() == "", problem["command"]
        assert next(iter(form.calls)) == "quern"


@pytest.mark.parametrize("op", OPS)
def test_lines_and_worst_problems(op, tmp_path, capsys):
    path = tmp_path / "s.jsonl"
    assert run(op, "--random", 3, "--seed", 7, "--most-bytes", 20000, "--json", path) == 0
    lines, out = [json.loads(line) for line in path.read_text().splitlines()], capsys.readouterr().out
    assert [line["problem"] for line in lines] == drawn(op, 3, "--seed", 7, "--most-bytes", 20000)
    assert all(len(line["rows"]["quern"]["step"]["samples_ns"]) == 6 and line["check"]["right"] for line in lines)
    assert f"{op}: 3 of 3 problems, 0 wrong" in out and "geometric mean" in out
    timed = [line for line in lines if "speedup" in line]
    assert timed and all(out.count(line["again"]) == 1 and line["problem"]["command"] in out for line in timed)


def test_a_problem_alone_is_the_same(tmp_path):
    path = tmp_path / "s.jsonl"
    run("swiglu", "--random", 2, "--seed", 7, "--most-bytes", 20000, "--json", path)
    last = json.loads(path.read_text().splitlines()[-1])
    words = last["again"].split()[3:]
    assert bench.main([*words, "--device", "cpu", "--no-compile", "--rounds", "6", "--json", str(path)]) == 0
    assert json.loads(path.read_text().splitlines()[-1])["problem"] == last["problem"]


def test_layout():
    problem = {
        "number": 0,
        "shift": 3,
        "apart": 5,
        "bytes": 1,
        "settings": {},
        "shapes": [[4, 7]],
        "roles": {"a": "bf16"},
    }
    form = sweep_forms.Swiglu(problem, CPU)
    assert form.a.shape == (4, 7) and form.a.stride() == (12, 1) and form.a.storage_offset() == 3


@pytest.mark.parametrize("op", OPS)
def test_a_wrong_result_gets_no_time(op, tmp_path, monkeypatch, capsys):
    def off(*arguments, **words):
        made = right(*arguments, **words)
        for tensor in arguments[2] if op == "lion" else made if isinstance(made, tuple) else (made,):
            tensor += 1.0
        return made

    name = {"lion": "lion_"}.get(op, op)
    right = getattr(sweep_forms.quern, name)
    monkeypatch.setattr(sweep_forms.quern, name, off)
    path = tmp_path / "s.jsonl"
    assert run(op, "--random", 2, "--seed", 7, "--most-bytes", 20000, "--json", path) == 1
    assert all("rows" not in json.loads(line) for line in path.read_text().splitlines())
    assert f"{op}: 2 of 2 problems, 2 wrong" in capsys.readouterr().out


def test_jobs_share_the_problems(tmp_path, capsys):
    path = tmp_path / "s.jsonl"
    assert run("swiglu", "--random", 4, "--most-bytes", 20000, "--jobs", 2, "--json", path) == 0
    numbers = sorted(json.loads(line)["problem"]["number"] for line in path.read_text().splitlines())
    assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["lion", "--random", "0"], "--random is 0, it must be at least 1"),
        (["lion", "--random", "1", "--seed", "-1"], "--seed is -1, it must be at least 0"),
        (["lin", "--random", "1"], 'did you mean "lion"'),
        (["velo", "--random", "1"], "velo has no form in PyTorch here; there are of gemm_norm, lion"),
        (["lion", "--random", "1", "--most-bytes", "1"], "no problem of at most 1 bytes"),
    ],
)
def test_refusals(words, sentence, capsys):
    try:
        status = bench.main(words)
    except SystemExit as ended:
        status = ended.code
    assert status == 2 and sentence in capsys.readouterr().err


def test_summary_orders_by_the_ratio():
    def line(number, ratio):
        problem = {"number": number, "types": "f32", "shape": "", "set": "", "bytes": 1, "command": f"command {number}"}
        return {
            "problem": problem,
            "again": f"again {number}",
            "check": {"right": True},
            "speedup": {"ratio": ratio},
            "rows": {},
        }

    said = sweep.summary("lion", [line(k, ratio) for k, ratio in enumerate((2.0, 0.5, 1.0, 4.0, 0.96, 1.5))], 6)
    assert "geometric mean 1.339, least 0.500, under 0.97 in 2 of 6 (33 %)" in said
    assert [k for k in range(6) if f"again {k}" in said] == [0, 1, 2, 4, 5]
    assert said.index("again 1") < said.index("again 4") < said.index("again 2")
