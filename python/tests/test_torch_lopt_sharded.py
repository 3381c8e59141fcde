# SPDX-License-Identifier: Apache-2.0
"""quern.torch's learned optimizers over DTensors and FSDP2, in two processes: the whole tensors' step to the tolerance,
state that is DTensor and lies as the rows do, checkpoints by torch.distributed.checkpoint, sums that fail, and what is
refused. Catches sums of one process taken for all, means over a shard's rows, an empty shard that leaves the others
waiting, groups of tensors cut differently."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("numpy")

import lopt_golden  # noqa: E402
import quern  # noqa: E402
import torch_ranks  # noqa: E402
from quern.torch import _lopt_shards  # noqa: E402
from test_torch_lion_sharded import RECENT, mesh, sharded, tensor_module  # noqa: E402
from torch_lopt_models import MLP, RNN, WEIGHTS  # noqa: E402

SHAPES = [(7, 5), (5, 7), (6, 6), (11,), (4, 3, 2), (1, 9), (64, 48), (3, 40, 50)]


def small_fc(params, **options):
    return quern.torch.SmallFCLopt(params, WEIGHTS, **options)


def elo(params, **options):
    return quern.torch.ELO(params, WEIGHTS, **options)


def velo(params, **options):
    return quern.torch.VeLO(params, MLP, RNN, 50, **options)


KINDS = {
    "small_fc_lopt": (small_fc, dict(weight_decay=0.1)),
    "bounded": (small_fc, dict(max_grad_norm=0.01)),
    "elo": (elo, dict(weight_decay=0.1, lr=0.01)),
    "elo, all bounded": (elo, dict(clip_grad=0.5, lr=0.01)),
    "velo": (velo, dict(weight_decay=0.1)),
}


def check_close(part, p, before, what):
    held, values, old = (t.detach().cpu().numpy() for t in (part.full_tensor(), p, before))
    share = lopt_golden.share_of_tolerance(held, values, old)
    assert share <= 1, (what, tuple(p.shape), share)


def dtensors(rank, world):
    tensor = tensor_module()
    on = mesh(world)
    places = [tensor.Shard(0)] * (len(SHAPES) - 1) + [tensor.Replicate()]
    for name in KINDS:
        make, options = KINDS[name]
        torch.manual_seed(3)
        whole = [torch.nn.Parameter(torch.randn(shape, device=on.device_type) / 4) for shape in SHAPES]
        parts = [torch.nn.Parameter(part) for part in sharded([p.detach() for p in whole], places, on)]
        reference, optimizer = make(whole, **options), make(parts, **options)
        loss = [torch.tensor(2.5, device=on.device_type)] if make is velo else []
        for _ in range(3):
            for p in whole:
                p.grad = torch.randn_like(p) / 50
            for part, grad in zip(parts, sharded([p.grad for p in whole], places, on)):
                part.grad = grad
            before = [p.detach().clone() for p in whole]
            reference.step(*loss)
            optimizer.step(*loss)
            for p, part, old in zip(whole, parts, before):
                check_close(part, p, old, name)
                for entry, value in optimizer.state[part].items():
                    wanted = reference.state[p][entry]
                    if entry in ("hidden", "cell"):  # each process has all of them
                        assert torch.allclose(value, wanted, rtol=0, atol=1e-5), (entry, p.shape)
                        continue
                    assert isinstance(value, tensor.DTensor) and value.shape == wanted.shape
                    assert torch.allclose(value.full_tensor(), wanted, rtol=2e-6, atol=1e-12), (name, entry, p.shape)


def state_lies_as_the_rows(rank, world):
    """The vector that lacks the rows is in all processes, the other one in pieces."""
    tensor = tensor_module()
    for shape, whole_entry, cut_entry in (
        ((8, 4), "exp_avg_sq_r", "exp_avg_sq_c"),
        ((4, 8), "exp_avg_sq_c", "exp_avg_sq_r"),
    ):
        (part,) = sharded([torch.randn(shape)], [tensor.Shard(0)], mesh(world))
        p = torch.nn.Parameter(part)
        p.grad = torch.ones_like(p)
        optimizer = quern.torch.SmallFCLopt([p], WEIGHTS)
        optimizer.step()
        state = optimizer.state[p]
        assert state[whole_entry].placements == (tensor.Replicate(),)
        assert state[cut_entry].placements == (tensor.Shard(1),) == state["exp_avg"].placements
        assert state["exp_avg_sq"].placements == (tensor.Shard(0),)


def refusals(rank, world):
    tensor = tensor_module()
    on = mesh(world)
    columns, rows = sharded([torch.randn(8, 4), torch.randn(8, 4)], [tensor.Shard(1), tensor.Shard(0)], on)
    p = torch.nn.Parameter(columns)
    p.grad = torch.ones_like(p)
    with pytest.raises(ValueError, match=r"parameter 0 of group 0 is placed as .*, and a step is taken over rows"):
        quern.torch.SmallFCLopt([p], WEIGHTS).step()
    p = torch.nn.Parameter(rows)
    p.grad = tensor.DTensor.from_local(torch.ones(8, 4), on, [tensor.Partial()], run_check=False)
    with pytest.raises(ValueError, match="is partial"):
        quern.torch.SmallFCLopt([p], WEIGHTS).step()
    p.grad = torch.ones_like(p)
    optimizer = quern.torch.SmallFCLopt([p], WEIGHTS)
    optimizer.step()
    good = dict(optimizer.state[p])
    for spoilt, sentence in (
        (good["exp_avg"].full_tensor(), "and its exp_avg a plain tensor"),
        (good["exp_avg"].redistribute(on, [tensor.Replicate()]), "where .* is wanted"),
    ):
        optimizer.state[p] = {**good, "exp_avg": spoilt}
        with pytest.raises(ValueError, match=sentence):
            optimizer.step()
    optimizer.state[p] = good


def sums_that_fail(rank, world):
    (part,) = sharded([torch.randn(8, 4)], [tensor_module().Shard(0)], mesh(world))
    p = torch.nn.Parameter(part)
    p.grad = torch.ones_like(p)
    before = p.full_tensor().clone()

    def fails(counts, groups):
        raise ConnectionError("a peer is gone")

    kept, _lopt_shards.sum_over_shards = _lopt_shards.sum_over_shards, fails
    try:
        with pytest.raises(RuntimeError, match="a sum over the processes failed, .*: a peer is gone"):
            quern.torch.SmallFCLopt([p], WEIGHTS).step()
    finally:
        _lopt_shards.sum_over_shards = kept
    assert torch.equal(p.full_tensor(), before)


def model(device):
    torch.manual_seed(5)
    made = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Tanh(), torch.nn.Linear(7, 5), torch.nn.Linear(5, 1))
    return made.to(device)


def fsdp2(rank, world):
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    from torch.distributed.fsdp import fully_shard

    device = mesh(world).device_type
    whole, parts = model(device), model(device)
    for layer in parts:
        fully_shard(layer, mesh=mesh(world))
    fully_shard(parts, mesh=mesh(world))
    Kind = quern.torch.SmallFCLopt
    reference, optimizer = Kind(whole.parameters(), WEIGHTS), Kind(parts.parameters(), WEIGHTS)

    def steps(optimizer):
        for step in range(2):
            torch.manual_seed(100 + step)
            data = torch.randn(4, 6).to(device)
            before = [p.detach().clone() for p in whole.parameters()]
            for net, opt in ((whole, reference), (parts, optimizer)):
                opt.zero_grad()
                net(data).square().sum().backward()
                opt.step()
            for p, part, old in zip(whole.parameters(), parts.parameters(), before):
                check_close(part, p, old, "fsdp2")

    steps(optimizer)
    saved = copy.deepcopy(get_optimizer_state_dict(parts, optimizer))
    other = Kind(parts.parameters(), WEIGHTS, lr=0.5)
    other.zero_grad()
    set_optimizer_state_dict(parts, other, saved)
    assert other.param_groups[0]["lr"] == 1.0 and other.param_groups[0]["step"] == 2
    for part in parts.parameters():
        for name, value in optimizer.state[part].items():
            assert torch.equal(other.state[part][name].full_tensor(), value.full_tensor())
    steps(other)


def all_of_them(rank, world):  # one start of the processes costs more than all of these
    for fn in (dtensors, state_lies_as_the_rows, refusals, sums_that_fail) + ((fsdp2,) if RECENT else ()):
        fn(rank, world)


def test_sharded(tmp_path):
    torch_ranks.run(all_of_them, tmp_path)


def over_nccl(rank, world):
    dtensors(rank, world)
    fsdp2(rank, world)


@pytest.mark.two_gpus
def test_over_nccl(tmp_path):
    torch_ranks.run(over_nccl, tmp_path, backend="nccl")
