# SPDX-License-Identifier: Apache-2.0
"""The judge of KernelBench files: each known cheat that a processor can show is refused, each broken candidate gets its
own verdict and leaves nothing running, each honest candidate is accepted."""

import dataclasses
import pathlib
import re
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "judge"))

import cases  # noqa: E402
from judging import GIB, LIMITS, OPTIONS, opened, verdict  # noqa: E402
from quern.kernelbench import _process, _settings  # noqa: E402


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("problem"), OPTIONS) as made:
        yield made


@pytest.fixture(scope="module")
def cuda_judge(tmp_path_factory):
    limits = dataclasses.replace(LIMITS, seconds=60, memory_bytes=16 * GIB)
    options = dataclasses.replace(OPTIONS, device="cuda", run_limits=limits, compile_limits=limits)
    with opened(tmp_path_factory.mktemp("problem"), options) as made:
        yield made


# A processor's memory, clock and threads are none of a GPU's.
PROCESSORS = ("thread", "works on", "writes behind an input", "another clock in the C library")
CUDA_CASES = [c for c in cases.CHEATS if not any(word in c[1] for word in PROCESSORS)] + cases.CUDA_CHEATS


@pytest.mark.cuda
@pytest.mark.parametrize("row, name, text, word, reason", CUDA_CASES, ids=[f"{c[0]}-{c[1]}" for c in CUDA_CASES])
def test_a_cheat_is_refused_on_a_gpu(cuda_judge, tmp_path, row, name, text, word, reason):
    line = verdict(cuda_judge, tmp_path, text)
    assert re.fullmatch(word, line["verdict"]), line
    assert re.search(reason, line["reason"]), line


@pytest.mark.cuda
@pytest.mark.parametrize("name, text", cases.HONEST, ids=[c[0] for c in cases.HONEST])
def test_an_honest_candidate_is_accepted_on_a_gpu(cuda_judge, tmp_path, name, text):
    line = verdict(cuda_judge, tmp_path, text)
    assert line["verdict"] in ("faster", "same", "slower", "unclear"), line
    assert len(line["timers"]["event"]["candidate"]["samples_ns"]) >= 11


@pytest.mark.parametrize("row, name, text, word, reason", cases.CHEATS, ids=[f"{c[0]}-{c[1]}" for c in cases.CHEATS])
def test_a_cheat_is_refused(judge, tmp_path, row, name, text, word, reason):
    line = verdict(judge, tmp_path, text)
    assert re.fullmatch(word, line["verdict"]), line
    assert re.search(reason, line["reason"]), line


def running(words):
    return subprocess.run(["pgrep", "-f", words], capture_output=True).returncode == 0


@pytest.mark.parametrize("name, text, word, reason", cases.BROKEN, ids=[c[0] for c in cases.BROKEN])
def test_a_broken_candidate_has_its_own_verdict(judge, tmp_path, name, text, word, reason):
    usual = judge.options.run_limits
    if name in ("hang", "flood"):
        judge.options.run_limits = judge.options.compile_limits = dataclasses.replace(usual, seconds=3)
    line = verdict(judge, tmp_path, text)
    judge.options.run_limits = judge.options.compile_limits = usual
    assert re.fullmatch(word, line["verdict"]), line
    assert re.search(reason, line["reason"]), line
    assert not running("sleep 987")


@pytest.mark.parametrize("name, text", cases.HONEST, ids=[c[0] for c in cases.HONEST])
def test_an_honest_candidate_is_accepted(judge, tmp_path, name, text):
    line = verdict(judge, tmp_path, text)
    assert line["verdict"] in ("faster", "same", "slower", "unclear"), line
    assert line["deterministic"] and len(line["timers"]["simple"]["candidate"]["samples_ns"]) >= 11


def test_an_output_that_is_not_well_formed_ends_no_run(judge, tmp_path):
    nested = cases.body("out = self.right(x, y)\nfor _ in range(30):\n    out = [out]\nreturn out")
    assert verdict(judge, tmp_path, nested)["verdict"] == "wrong type"
    fourth = "if self.calls > 5:\n    raise ValueError('enough')\nreturn self.right(x, y)"
    line = verdict(judge, tmp_path, cases.body(fourth))
    assert line["verdict"] == "forward fails" and "enough" in line["reason"]


def test_flags_that_a_candidate_sets_are_told(judge, tmp_path):
    flips = cases.body("return self.right(x, y)", "torch.backends.cuda.matmul.allow_tf32 = True")
    line = verdict(judge, tmp_path, flips)
    assert line["verdict"] in ("faster", "same", "slower", "unclear")
    assert any("sets torch's matmul tf32" in note for note in line["notes"]), line


def test_times_under_two_settings_of_a_gpu_allow_no_word(judge, tmp_path, monkeypatch):
    read = iter([{"power limit": 700000, "compute mode": 0}, {"power limit": 350000, "compute mode": 0}])
    monkeypatch.setattr(_settings, "read", lambda device: next(read))
    line = verdict(judge, tmp_path, cases.HONEST[0][1])
    assert line["verdict"] == "unclear" and {s["word"] for s in line["speedup"].values()} == {"unclear"}, line
    assert any("the GPU's power limit changed" in note for note in line["notes"]), line


def test_waits_for_a_processor_are_no_hidden_time(judge, tmp_path, monkeypatch):
    text = cases.HONEST[0][1]
    ask = _process.Process.ask

    def slow(process, do, **request):  # the answer is there, and the judge gets no processor
        if do == "go" and process is judge.process:
            time.sleep(0.05)
            delayed.append(50_000_000)
        return ask(process, do, **request)

    delayed: list = []
    monkeypatch.setattr(_process.Process, "ask", slow)
    assert verdict(judge, tmp_path, text)["verdict"] == "refused"
    real = _process.Process.waited_ns
    monkeypatch.setattr(_process.Process, "waited_ns", lambda process: real(process) + sum(delayed))
    assert verdict(judge, tmp_path, text)["verdict"] in ("faster", "same", "slower", "unclear")


def test_a_slow_warm_up_leaves_the_count_of_samples(judge, tmp_path):
    line = verdict(judge, tmp_path, cases.body("time.sleep(0.4 if self.calls < 12 else 0)\nreturn self.right(x, y)"))
    assert len(line["timers"]["simple"]["candidate"]["samples_ns"]) >= 11
