# SPDX-License-Identifier: Apache-2.0
"""The bench of learned optimizers: that its check finds an optimizer that is wrong, that its lists are the models',
that lines hold what was measured, and that a peak of memory is one. No time is judged."""

import json

import pytest

torch = pytest.importorskip("torch")

from quern.bench import __main__ as bench  # noqa: E402
from quern.bench import lopt_memory, lopt_peers, materialised, materialised_celo2, single, stats  # noqa: E402

CPU = torch.device("cpu")
SMALL = [(40, 30), (30,), (), (5, 4, 3), (64, 64)]


@pytest.fixture(autouse=True)
def _small_lists(monkeypatch):
    command = stats.workload
    monkeypatch.setattr(stats, "workload", lambda name: SMALL if name == "gpt-10m" else command(name))


@pytest.mark.parametrize(
    ("name", "tensors", "elements"),
    [("gpt2-124m", 148, 124439808), ("gpt2-355m", 292, 354823168), ("vit-b16", 152, 86567656), ("1x16384^2", 1, 2**28)],
)
def test_lists_are_the_models(name, tensors, elements):
    shapes = stats.workload(name)
    assert (len(shapes), lopt_peers.elements(shapes)) == (tensors, elements)


def test_a_workload_that_is_not_there(capsys):
    assert bench.main(["lopt", "--device", "cpu", "-w", "gpt2-125m"]) == 2
    assert "gpt2-124m" in capsys.readouterr().err


@pytest.mark.parametrize("op", lopt_peers.OPS)
def test_a_line_holds_what_was_measured(op, capsys, tmp_path):
    path = tmp_path / "lines.jsonl"
    assert bench.main(["lopt", "--op", op, "--device", "cpu", "--rounds", "6", "--json", str(path)]) == 0
    (line,) = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert (line["op"], line["tensors"], line["elements"]) == (op, 5, 40 * 30 + 30 + 1 + 60 + 64 * 64)
    assert line["check"]["right"] and 0 < line["check"]["worst_over_tolerance"] <= 1
    assert len(line["step"]["samples_ns"]) == len(line["copy"]["samples_ns"]) == 6
    assert line["launches"] is None  # a processor has none; tests/lopt.c counts a device's
    plain, pylo, *alone = line["peers"]
    assert [peer["name"] for peer in alone] == (["newton_schulz_fp32"] if op == "celo2" else [])
    assert plain["verdict"] in ("faster", "same", "slower", "unclear") and len(plain["step"]["samples_ns"]) == 6
    assert pylo["name"] == "pylo" and pylo["absent"]
    vectors = [(2 * 30, 0), (2, 0)] if op == "celo2" else [(4 * 30, 90), (4, 3)]  # AdamW's have two means
    assert line["state_bytes"] == 4 * sum(
        n + rest for n, rest in ((4800, 3 * 70), *vectors, (240, 3 * (12 + 15)), (4 * 4096, 3 * 128))
    ) + (5 * 2 * 512 * 4 if op == "velo" else 0)
    told = capsys.readouterr().out
    assert "materialised" in told and "quern against it" in told and "not installed" in told


@pytest.mark.parametrize("shape", [(30, 40), (40, 30)])
def test_newton_schulz_is_the_contracts(shape):
    of = lopt_peers.Quern("celo2", [shape], CPU, "fp32")
    peer = lopt_peers.NewtonSchulz(of, torch.float32, CPU)
    torch.testing.assert_close(peer.orthogonal(peer.matrices[0]), materialised_celo2.orthogonal(peer.matrices[0]))


def test_a_class_that_the_op_does_not_have(capsys):
    with pytest.raises(SystemExit):
        bench.main(["lopt", "--op", "celo2", "--device", "cpu", "--precision", "f16"])
    assert "--precision is f16, celo2 has f16x3, fp32, tf32, bf16x3, tf32x3, bf16" in capsys.readouterr().err


def spoiled(monkeypatch, change):
    step = materialised.step

    def other(rule, weights, params, grads, states, taken, lr, weight_decay=0.0):
        change(params)
        step(rule, weights, params, grads, states, taken, lr, weight_decay)

    monkeypatch.setattr(materialised, "step", other)


def test_what_is_wrong_gets_no_time(monkeypatch, capsys):
    spoiled(monkeypatch, lambda params: params[-1][-1].add_(1e-5))
    assert bench.main(["lopt", "--device", "cpu", "--rounds", "1"]) == 1
    assert "quern is WRONG, so nothing is timed: step 0" in capsys.readouterr().out


def test_the_check_knows_the_time_that_an_optimizer_has(monkeypatch):
    step = materialised.step
    monkeypatch.setattr(materialised, "step", lambda *args: step(*args[:5], 0, *args[6:]))  # always the first step
    assert not lopt_peers.check("small_fc_lopt", SMALL, CPU, "fp32")["right"]


def test_what_does_not_fit_is_not_begun(monkeypatch, capsys):
    monkeypatch.setattr(lopt_peers, "free_bytes", lambda device: 1 << 16)
    assert bench.main(["lopt", "--device", "cpu", "--rounds", "1"]) == 0
    assert "GiB, and 0 are free" in capsys.readouterr().out


def test_a_peak_is_what_was_taken_and_given_back():
    peak = lopt_memory.peak_of(lambda: torch.ones(12 << 20).sum(), CPU)
    if peak is None:
        pytest.skip("no GPU, and this system does not say what a process's peak was")
    assert 46 << 20 <= peak < 80 << 20
    assert lopt_memory.peak_of(lambda: None, CPU) < 8 << 20


@pytest.mark.parametrize("words", [["--rounds", "0"], ["--op", "lion"], ["--threads", "0"]])
def test_mistakes(words, capsys):
    with pytest.raises(SystemExit) as ended:
        bench.main(["lopt", *words])
    assert ended.value.code == 2 and capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ValueError("wrong"), 2, "wrong"),
        (OSError("wrong"), 2, "wrong"),
        (torch.cuda.OutOfMemoryError("wrong\nand more"), 1, "wrong"),
        (RuntimeError("wrong\nand more"), 3, "wrong"),
        (NotImplementedError(), 3, "NotImplementedError"),
    ],
)
def test_how_a_command_ends(error, status, said, capsys):
    def fail():
        raise error

    assert single.ended("bench", None, fail) == status
    assert capsys.readouterr().err == f"bench: {said}\n"
