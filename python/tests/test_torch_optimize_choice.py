# SPDX-License-Identifier: Apache-2.0
"""What optimize does where the fastest plan is wrong, where memory does not suffice, where a call keeps the GPU busy,
and where the module's own numbers prove nothing."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern.optimize import _kept, _search, _timing, _verify  # noqa: E402
from quern.optimize._model import optimize  # noqa: E402
from quern.optimize._report import Report  # noqa: E402
from torch_optimize_models import of, randn  # noqa: E402


@pytest.fixture(autouse=True)
def own_choices(tmp_path, monkeypatch):
    monkeypatch.setattr(_kept, "folder", lambda: tmp_path / "choices")


def searched():
    """(the search, its first alternative, what it is held against)"""
    model, x = of(lambda x: torch.tanh(x) * 2 + 1), randn(64)
    search = _search.Search(model, model, (x,), {}, Report())
    return search, search.alternatives()[0], _verify.Reference(model, model, (x,), {})


def test_where_the_fastest_is_wrong_the_others_race_again(monkeypatch):
    """They had left the race because of it, and the module, which stays to the end, was taken for the fastest."""
    wrong, races = _verify.Reference.wrong, []

    def race(functions, cuda, seconds, stay=1):
        if "original" not in functions:  # the speed of a copy
            return {name: [100] for name in functions}
        races.append(set(functions))
        took = {"original": 900, "PyTorch's ops": 500, "fused": 100}
        rounds = {name: 3 if name == "PyTorch's ops" and "fused" in functions else 11 for name in functions}
        return {name: [took[name]] * rounds[name] for name in functions}

    def verified(self, function, sets=None, infinities=True):
        whole = sets is None and len(races) == 1  # of the first race's winner
        return "its elements are wrong" if whole else wrong(self, function, sets, infinities)

    monkeypatch.setattr(_timing, "race", race)
    monkeypatch.setattr(_timing, "fastest", lambda run, cuda: 100)
    monkeypatch.setattr(_search._select, "losers", lambda *_: [])
    monkeypatch.setattr(_verify.Reference, "wrong", verified)
    report = optimize(of(lambda x: torch.tanh(x) * 2 + 1), randn(64)).report
    assert races == [{"original", "PyTorch's ops", "fused"}, {"original", "PyTorch's ops"}]
    assert report.chosen == "PyTorch's ops" and report.rejected["fused"] == "its elements are wrong"


@pytest.mark.parametrize("quiet", [True, False])
def test_where_a_race_was_disturbed_the_two_race_again(tmp_path, monkeypatch, quiet):
    """Else a busy moment would make the module's own calls the choice that is kept."""
    races = []

    def race(functions, cuda, seconds, stay=1):
        if "original" not in functions:  # the speed of a copy
            return {name: [100] for name in functions}
        races.append(set(functions))
        disturbed = [4000] * 3 if len(races) == 1 or not quiet else [100] * 23
        took = {"original": [400] * (8 + len(disturbed)), "PyTorch's ops": [390] * 11, "fused": [100] * 8 + disturbed}
        return {name: took[name] for name in functions}

    monkeypatch.setattr(_timing, "race", race)
    monkeypatch.setattr(_timing, "fastest", lambda run, cuda: 100)
    monkeypatch.setattr(_search._select, "losers", lambda *_: [])
    report = optimize(of(lambda x: torch.tanh(x) * 2 + 1), randn(64)).report
    assert races == [{"original", "PyTorch's ops", "fused"}, {"original", "fused"}]
    assert len(report.samples["original"]) == len(report.samples["fused"]) == (42 if quiet else 22)
    assert report.chosen == ("fused" if quiet else "original")
    assert quiet or report.why == ["fused is not faster for certain (4)"]
    assert len(list(tmp_path.glob("choices/*"))) == quiet  # the next process looks again


def test_graphs_leave_where_memory_does_not_suffice(monkeypatch):
    search, alternative, reference = searched()
    graphed = replace(alternative, name="g" + _search.GRAPHED, graphed=True)
    racers = {graphed.name: (search.fast(alternative), graphed)}
    held = racers[graphed.name][0]
    held.replay, search.quick[graphed.name] = object(), 1 << 40
    tried, left = search._tried, []

    def short_of_memory(one, reference):
        left.append(held.replay)
        if held.replay is not None or one.name == "never":
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Process 1 has 2 GiB")
        return tried(one, reference)

    monkeypatch.setattr(search, "_tried", short_of_memory)
    assert search._enter(racers, alternative, reference) is not None
    assert left[0] is not None and left[1] is None and alternative.name in racers
    assert search._enter(racers, replace(alternative, name="never"), reference) is None
    assert search.report.rejected["never"] == "it fails: the GPU's memory does not suffice"


@pytest.mark.parametrize("took, host, busy", [(2_000_000, 400_000, True), (2_000_000, 600_000, False),
                                              (900_000, 100, False)])  # fmt: skip
def test_a_call_that_keeps_the_gpu_busy_gets_no_graph(monkeypatch, took, host, busy):
    search, alternative, reference = searched()
    monkeypatch.setattr(_timing, "fastest", lambda run, cuda: took)
    monkeypatch.setattr(_timing, "host_ns", lambda run: host)
    monkeypatch.setattr(_search, "_peak", lambda run: 0)
    search.cuda = True  # its answers are given
    assert search._tried(alternative, reference)[1] == ""
    graphed = replace(alternative, name=alternative.name + _search.GRAPHED, graphed=True)
    monkeypatch.setattr(search, "fast", lambda one: search_fast(replace(one, graphed=False)))
    search_fast = _search.Search.fast.__get__(search)
    assert search._tried(graphed, reference)[1] == ("the GPU is busy without it" if busy else "")


@pytest.mark.parametrize("times, wrong", [(10, False), (20, True)])
def test_what_is_0_but_for_rounding_is_held_to_sixteen_times_it(times, wrong):
    model = of(lambda x: (x - x.mean(1, keepdim=True)).mean(1))
    reference = _verify.Reference(model, model, (randn(40, 999),), {})
    assert reference.error > 1
    assert (reference.wrong(lambda x: model(x) * times, 1) != "") == wrong


def test_nan_that_float64_has_not_proves_nothing_and_others_do():
    """As cuDNN's, which multiplies NaN by zeros of its own."""

    def more(x):
        y = x * 2
        return (
            torch.where(y.isnan().any() & (torch.arange(64) == 5), float("nan"), y) if x.dtype == torch.float32 else y
        )

    model = of(more)
    reference = _verify.Reference(model, model, (randn(64),), {})
    assert reference.wrong(lambda x: x * 2) == ""
    assert "nan" in reference.wrong(lambda x: (x * 2).nan_to_num(0.0))
