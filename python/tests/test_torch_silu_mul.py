# SPDX-License-Identifier: Apache-2.0
"""quern.torch.SiLUMul, whose backward writes over what it was given: the bits of the ops, in Liger's own layer, over
DTensors, and what is refused since it can no longer be right."""

import pytest

torch = pytest.importorskip("torch")
import quern  # noqa: E402
import quern.torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

try:
    import torch.distributed.tensor as tensors

    tensors.DTensor  # noqa: B018
except (ImportError, AttributeError):  # before torch 2.5
    import torch.distributed._tensor as tensors

apply = quern.torch.SiLUMul.apply


def draw(*shape, dtype=torch.float32, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def leaves(*shape, dtype=torch.float32):
    return [draw(*shape, dtype=dtype, seed=seed).requires_grad_() for seed in (1, 2)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_written_over_what_was_given(dtype):
    a, b = leaves(6, 33, dtype=dtype)
    kept, dc = [x.detach().clone() for x in (a, b)], draw(6, 33, dtype=dtype, seed=4)
    c = apply(a, b, 1.3, 0.7)
    assert torch.equal(c, quern.swiglu(*kept, 1.3, 0.7))
    da, db = torch.autograd.grad(c, (a, b), dc)
    want = quern.swiglu_backward(dc, *kept, 1.3, 0.7)
    assert torch.equal(da, want[0]) and torch.equal(db, want[1])
    assert torch.equal(a, want[0]) and da.data_ptr() == a.data_ptr() and db.data_ptr() == b.data_ptr()


def test_a_second_backward_is_refused():
    a, b = leaves(5)
    c = apply(a, b).sum()
    c.backward(retain_graph=True)
    held = a.detach().clone()
    with pytest.raises(RuntimeError, match="nothing left to go backward a second time from"):
        c.backward()
    assert torch.equal(a, held)


def test_a_second_derivative_is_refused_before_anything_is_written():
    a, b = leaves(5)
    kept = a.detach().clone()
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(apply(a, b).sum(), a, create_graph=True)
    assert torch.equal(a, kept)


def test_others_that_kept_the_inputs_are_told():
    a, b = leaves(5)
    x, y = a * 1, b * 1
    c, other = apply(x, y).sum(), (x * x).sum()
    c.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        other.backward()


def test_what_is_not_row_major_keeps_its_values():
    both = draw(4, 32).requires_grad_()
    kept = both.detach().clone()
    a, b = both.chunk(2, -1)
    apply(a, b).sum().backward()
    assert torch.equal(both, kept)
    want = quern.swiglu_backward(torch.ones(4, 16), *(x.contiguous() for x in kept.chunk(2, -1)))
    assert torch.equal(both.grad, torch.cat(want, -1))


def test_in_ligers_layer(monkeypatch):
    """Put in the place of Liger's own function, whose kernels want a GPU, its layer gives eager PyTorch's values."""
    liger = pytest.importorskip("liger_kernel.transformers.swiglu")
    monkeypatch.setattr(liger, "LigerSiLUMulFunction", quern.torch.SiLUMul)
    config = type("Config", (), {"hidden_size": 16, "intermediate_size": 48, "hidden_act": "silu"})
    torch.manual_seed(0)
    layer, x = liger.LigerSwiGLUMLP(config), draw(7, 16).requires_grad_()
    got = layer(x)
    (grad,) = torch.autograd.grad(got.sum(), x)
    want = layer.down_proj(torch.nn.functional.silu(layer.gate_proj(x)) * layer.up_proj(x))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(grad, torch.autograd.grad(want.sum(), x)[0], rtol=1e-5, atol=1e-6)


# ---- DTensors, on a mesh of one rank ----
@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    if not dist.is_available():
        pytest.skip("PyTorch was built without torch.distributed")
    from torch.distributed.device_mesh import init_device_mesh

    store = tmp_path_factory.mktemp("ranks") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


@pytest.mark.parametrize("function", [apply, quern.torch.swiglu])
def test_shards_are_worked_on_where_they_are(function, mesh):
    DTensor, Shard, distribute_tensor = tensors.DTensor, tensors.Shard, tensors.distribute_tensor
    a, b = (distribute_tensor(x.detach(), mesh, [Shard(0)]).requires_grad_() for x in leaves(6, 9))
    kept = [x.to_local().detach().clone() for x in (a, b)]
    c = function(a, b, 1.3)
    assert isinstance(c, DTensor) and c.placements == (Shard(0),) and c.shape == (6, 9)
    assert torch.equal(c.to_local(), quern.swiglu(*kept, 1.3))
    da, db = torch.autograd.grad(c.to_local().sum(), (a, b))
    want = quern.swiglu_backward(torch.ones(6, 9), *kept, 1.3)
    assert torch.equal(da.to_local(), want[0]) and torch.equal(db.to_local(), want[1])
    assert da.placements == (Shard(0),)


@pytest.mark.parametrize("function", [apply, quern.torch.swiglu])
def test_placements_that_cannot_be_right(function, mesh):
    DTensor, Partial, Replicate, Shard = tensors.DTensor, tensors.Partial, tensors.Replicate, tensors.Shard
    x = draw(4, 6)
    sharded, whole, parts = (DTensor.from_local(x, mesh, [p]) for p in (Shard(1), Replicate(), Partial()))
    with pytest.raises(ValueError, match="a sum in parts"):
        function(parts, parts)
    with pytest.raises(ValueError, match="redistribute one of them"):
        function(sharded, whole)
    with pytest.raises(ValueError, match="shapes"):
        function(sharded, DTensor.from_local(draw(4, 3), mesh, [Shard(1)]))
    assert torch.equal(function(sharded, x).to_local(), quern.swiglu(x, x))  # a plain one is taken as whole
