# SPDX-License-Identifier: Apache-2.0
"""The memory of a plan's large results on a processor: used again when nobody holds it, and never before."""

import threading

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

import torch.nn.functional as F  # noqa: E402
from quern.optimize import _memory, _program, _search  # noqa: E402
from quern.optimize._memory import Memory  # noqa: E402
from quern.optimize._report import Report  # noqa: E402
from torch_optimize_models import of, randn  # noqa: E402

SHAPE, STRIDES = (512, 512), (512, 1)


def test_memory_is_used_again_when_nobody_holds_it():
    memory = Memory()
    first = memory(SHAPE, STRIDES, torch.float32)
    at = first.data_ptr()
    assert memory(SHAPE, STRIDES, torch.float32).data_ptr() != at  # `first` holds it
    array = first[3].numpy()
    del first
    assert memory(SHAPE, STRIDES, torch.float32).data_ptr() != at  # a view of it does
    del array
    again = memory((256, 512), (1, 256), torch.float64)
    assert again.data_ptr() == at and again.stride() == (1, 256) and not again._is_view()
    with torch.inference_mode():
        assert memory(SHAPE, STRIDES, torch.float32).is_inference()


def test_memory_is_not_given_for_much_smaller_or_larger_results():
    memory = Memory()
    at = memory(SHAPE, STRIDES, torch.float32).data_ptr()
    assert memory((128, 512), STRIDES, torch.float32).data_ptr() != at
    assert memory((513, 512), STRIDES, torch.float32).data_ptr() != at
    assert memory(SHAPE, STRIDES, torch.float32).data_ptr() == at


def test_memory_that_a_holder_changed_is_let_go():
    memory = Memory()
    for change in (lambda t: t.share_memory_(), lambda t: t.untyped_storage().resize_(16)):
        made = memory(SHAPE, STRIDES, torch.float32)
        at = made.untyped_storage()._cdata
        change(made)
        del made
        new = memory(SHAPE, STRIDES, torch.float32)
        assert new.untyped_storage()._cdata != at and new.fill_(1).sum() == 512 * 512


def test_blocks_are_bounded():
    memory = Memory()
    held = [memory(SHAPE, STRIDES, torch.float32) for _ in range(2 * _memory.MOST)]
    assert len(memory.blocks) == _memory.MOST and len({t.data_ptr() for t in held}) == len(held)


def test_threads_never_share_a_result():
    memory, wrong = Memory(), []

    def work(number: int) -> None:
        for _ in range(300):
            mine = memory((1024,), (1,), torch.int64).fill_(number)
            wrong.append(bool((mine != number).any()))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 1200 and not any(wrong)


def planned(model, x, name):
    """(the text of an alternative, its function)."""
    search = _search.Search(model, model, (x,), {}, Report())
    found = next(one for one in search.alternatives() if one.name == name)
    return found.program.text, search.fast(found)


def test_a_plan_never_changes_a_result_that_is_held():
    model, x, y = of(lambda x: F.gelu(x) + 1), randn(700, 600), randn(700, 600)
    text, fast = planned(model, x, "fused")
    assert "memory((700, 600)" in text
    a, b = fast(x), fast(y)
    assert torch.allclose(a, model(x)) and torch.allclose(b, model(y)) and a.data_ptr() != b.data_ptr()
    at = a.data_ptr()
    del a
    assert fast(x).data_ptr() == at


def test_ops_that_write_where_they_are_told_do():
    assert _program._into("aten.mm.default") == "aten.mm.out"
    assert _program._into("aten.sum.dim_IntList") == "aten.sum.IntList_out"
    for op in ("aten.relu.default", "aten.convolution.default", "aten.native_layer_norm.default"):
        assert _program._into(op) is None  # they would compute elsewhere and copy
    model, x = of(lambda x: (x @ x).t() @ x), randn(600, 600)
    text, fast = planned(model, x, "PyTorch's ops")
    assert text.count("= aten_mm_out(") == 2
    assert torch.equal(fast(x), model(x))


def test_a_net_in_channels_last_copies_nothing_between_convolutions():
    conv = [torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(2)]
    model = of(lambda x: conv[1](torch.relu(conv[0](x))).sigmoid())
    x = randn(2, 8, 10, 12)
    with torch.no_grad():
        text, fast = planned(model, x, "fused, channels_last")
        assert "relu.as_strided((2, 8, 10, 12), (960, 1, 96, 8))" in text
        assert "aten_clone(" not in text.partition("def quern_plan")[2]
        made, want = fast(x), model(x)
    assert torch.allclose(made, want, atol=1e-6) and made.stride() == want.stride()
