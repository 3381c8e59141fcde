# SPDX-License-Identifier: Apache-2.0
"""The bench of products with an epilogue: what its lines hold, and that an error shows beside a time. No time is
judged."""

import json
import subprocess

import pytest

torch = pytest.importorskip("torch")

from quern.bench import __main__ as bench  # noqa: E402
from quern.bench import command, gemm, gemm_variants  # noqa: E402


@pytest.fixture
def not_compiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda formula, **_: formula)


def run(*words):
    return bench.main(["gemm", "--device", "cpu", "--rounds", "6", *map(str, words)])


def test_a_line(tmp_path, capsys, not_compiled):
    path = tmp_path / "g.jsonl"
    assert run("-s", "5x64x32x4", "-p", "fp32", "-p", "tf32", "--json", path) == 0
    (line,) = map(json.loads, path.read_text().splitlines())
    assert (line["m"], line["k"], line["n"], line["groups"]) == (5, 64, 32, 4)
    rows = {row["name"]: row for row in line["rows"]}
    assert set(rows) == {"quern fp32", "quern tf32", "eager fp32", "compile fp32"}
    assert rows["quern fp32"]["worst_error"] < 1e-4 < rows["quern tf32"]["worst_error"]
    assert len(rows["quern fp32"]["step"]["samples_ns"]) == 6
    assert rows["quern fp32"]["beside"] in ("eager fp32", "compile fp32")
    assert "gemm_norm 5 x 64 -> 32" in capsys.readouterr().out


def test_a_wrong_peer_shows_its_error(tmp_path, monkeypatch, not_compiled):
    right = gemm.eager
    monkeypatch.setattr(gemm, "eager", lambda *a: right(*a) * (1.01 if a[0].dtype == torch.float32 else 1))
    path = tmp_path / "g.jsonl"
    assert run("-s", "5x64x32x4", "-p", "fp32", "--json", path) == 0
    rows = {row["name"]: row for row in json.loads(path.read_text())["rows"]}
    assert rows["eager fp32"]["worst_error"] > 1e-2 > rows["quern fp32"]["worst_error"]


def test_variants(tmp_path, monkeypatch, capsys):
    """On a processor there is one way, and no option that forces another: its lines hold the same words."""
    monkeypatch.setattr(gemm_variants, "_last", lambda: "plain (the rule)")
    path = tmp_path / "v.jsonl"
    assert run("-s", "5x64x32x4", "-p", "fp32", "-p", "bf16", "--variants", "plain,cublas", "--json", path) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(x["dtype"], x["precision"], x["variant"]) for x in lines] == [
        ("f32", "fp32", "plain"),
        ("f32", "bf16", "plain"),
        ("bf16", "bf16", "plain"),
    ]
    assert lines[0]["worst_error"] < 1e-4 < lines[1]["worst_error"] and lines[0]["same_bits"] and lines[0]["chosen"]
    assert all(len(x["step"]["samples_ns"]) == 6 and x["tflops"] > 0 for x in lines)
    assert "error" in capsys.readouterr().out
    assert run("-s", "5x64x32x4", "--variants", "plane") == 2 and "no variant plane" in capsys.readouterr().err


def test_the_names_are_the_librarys():
    names = subprocess.run([command.find(), "list", "gemm_norm"], capture_output=True, text=True, check=True).stdout
    listed = [line.split()[0] for line in names.splitlines() if "serves" in line.split()[1:2]]
    assert tuple(listed) == gemm_variants.VARIANTS


@pytest.mark.parametrize(
    "words",
    [
        ("-s", "5x64x32"),
        ("-s", "5x64x32x5"),
        ("-s", "0x1x1x1"),
        ("-s", "axbxcxd"),
        ("-s", "5x64x32x4", "--json", "/nowhere/x.jsonl"),
    ],
)
def test_mistakes(words, capsys):
    assert run(*words) == 2
    assert "python -m quern.bench gemm:" in capsys.readouterr().err
