# SPDX-License-Identifier: Apache-2.0
"""Parts of the judge of KernelBench files that need no process of a model: comparisons, values on their way, means."""

import json
import math
import os
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parent / "judge"))

from judging import files  # noqa: E402
from quern.kernelbench import _aggregate, _ceilings, _compare, _files, _tree  # noqa: E402


def made(verdict, **speedup):
    return {
        "problem": "p",
        "verdict": verdict,
        "reason": "",
        "speedup": {k: {"ratio": v, "of": "eager", "word": verdict} for k, v in speedup.items()},
    }


def test_means_count_a_loss_as_one():
    lines = [
        made("faster", better=4.0, eager=4.0),
        made("slower", better=0.25, eager=0.25),
        made("wrong values"),
        made("cannot be judged"),
    ]
    s = _aggregate.summary(lines)
    assert s["geometric_mean"]["better"] == pytest.approx(4 ** (1 / 3)) and s["geometric_mean_all"] == pytest.approx(
        4 ** (1 / 4)
    )
    assert s["fast"] == {"0.0": 2 / 3, "1.0": 1 / 3, "1.5": 1 / 3, "2.0": 1 / 3, "3.0": 1 / 3, "5.0": 0.0}
    assert _aggregate.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "path, at",
    [
        ("a/level1/23_Softmax.py", (1, 23)),
        ("level_3/problem_9/x_kernel.py", (3, 9)),
        ("level2-94-kernel.py", (2, 94)),
        ("x.py", None),
        ("level1/2_old/level3/7_net.py", (3, 7)),
    ],
)
def test_a_path_names_level_and_number(path, at):
    assert _files.place(path) == at


def leaf(**changes):
    return {"tensor": {"dtype": "float32", "shape": [4], "stride": [1], "at": 0, "bytes": 16, **changes}}


@pytest.mark.parametrize(
    "tree",
    [
        leaf(at=8), leaf(at=-4), leaf(shape=[5]), leaf(shape=[-4]), leaf(shape=[1 << 60]), leaf(dtype="object"),
        leaf(dtype=[]), leaf(bytes=4), leaf(stride=[]), leaf(shape="4"), leaf(at=True), {"tensor": None},
        {"float": "x"}, {"value": [1]}, {"list": 3}, {"other": 1}, [], None, {"list": [{"list": [{"list": [[]]}]}]},
        {"tuple": [leaf(), leaf(at=4)]},
    ],
)  # fmt: skip
def test_a_tree_from_a_candidate_is_only_data(tree):
    fd = os.memfd_create("values")
    os.ftruncate(fd, 16)
    with pytest.raises(_tree.Unfit):
        _tree.read(tree, _tree.Memory(fd))
    os.close(fd)


def test_values_survive_the_way(tmp_path):
    fd = os.memfd_create("values")
    sent = [
        torch.randn(3, 4).t(),
        {"a": (1, 2.5, None, "x")},
        torch.tensor(7),
        torch.empty(0, 3),
        torch.ones(2, dtype=torch.bool),
    ]
    back = _tree.read(json.loads(json.dumps(_tree.write(sent, _tree.Memory(fd)))), _tree.Memory(fd))
    os.close(fd)
    assert back[1] == sent[1] and back[0].told_stride == (1, 4)
    assert all(torch.equal(a, b) for a, b in zip(_tree.tensors(back), _tree.tensors(sent)))


def test_the_least_time_counts_nothing_that_an_honest_kernel_may_skip():
    work = {"operations": 1e6, "convolutions": 0, "inputs": 1000, "nonzero": 1000, "sparse": False, "parameters": 500,
            "embeddings": 0, "outputs": 100}  # fmt: skip
    slow = _ceilings.Ceilings(1e9, {"float32": 1e9, "bf16": 1e10}, 0.0, 0)
    assert _ceilings.least_ns(work, slow, "tf32") == pytest.approx(1e6)
    assert _ceilings.least_ns(work, slow, "bf16") == pytest.approx(1e5)  # a class that may use the faster rate
    assert _ceilings.least_ns({**work, "convolutions": 1e6}, slow, "tf32") == pytest.approx(1e6 / 2.25)
    triangle = {**work, "sparse": True, "nonzero": 500, "embeddings": 400}
    assert _ceilings.least_ns(triangle, slow, "tf32") == pytest.approx(700)
    kept = _ceilings.Ceilings(1e9, {"float32": 1e9}, 0.0, 1 << 20)
    assert _ceilings.least_ns(triangle, kept, "tf32") == pytest.approx(600)


def test_what_does_not_move_is_found():
    want, after = torch.ones(4), torch.tensor([1.0, 1.0, 1.05, 1.0])
    assert _compare.still(want, want, after, after.clone()) == ""
    assert "element 2 moves by 0.05, the candidate's by 0" in _compare.still(want, want, after, want)
    assert _compare.still(want, want, want, want) == ""


@pytest.mark.parametrize("kind", ["float32", "float16", "float64", "complex64", "int64"])
def test_large_outputs_are_compared_in_parts(kind):
    dtype, tolerance = getattr(torch, kind), _compare.Tolerance("original")
    want = (torch.arange(200_000) % 97).to(dtype)
    got = want.clone()
    assert not _compare.compare(got, want, tolerance).wrong
    got[150_000] += 5
    found = _compare.compare(got, want, tolerance)
    assert found.wrong.startswith("1 of 200000 elements") and "element 150000" in found.wrong and found.most == 5
    if dtype.is_floating_point:
        for spoilt in (float("nan"), float("inf")):
            got[150_000] = spoilt
            assert _compare.compare(got, want, tolerance).wrong
            same = want.clone()
            same[150_000] = spoilt
            assert not _compare.compare(got, same, tolerance).wrong


def test_hybrids_are_counted(tmp_path):
    own, both = files(tmp_path, own="import triton\n@triton.jit\ndef f(): pass", both="# torch.compile and load_inline")
    assert not _files.hybrid(own) and _files.hybrid(both)
    s = _aggregate.summary([{**made("faster", better=2.0), "hybrid": True}, made("wrong values")])
    assert s["hybrids"] == 1 and s["without_times"] == 1
    assert any("1 of the correct ones use torch.compile" in line for line in _aggregate.text("all", s))


def test_an_error_is_of_all_parts_and_of_finite_elements():
    got, exact = torch.ones(2, 70000), torch.ones(2, 70000).double()  # more than one part
    got[0, 0], got[1, -1] = 1.5, 2
    exact[1, 3], got[0, 7] = float("inf"), float("nan")
    assert math.isclose(_compare.error([got], [exact]), math.sqrt(1.25 / (2 * 70000 - 2)))
