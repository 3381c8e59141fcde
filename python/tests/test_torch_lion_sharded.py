# SPDX-License-Identifier: Apache-2.0
"""quern.torch.Lion under DistributedDataParallel, FSDP2 and DTensor, over two processes: the whole model's bits,
state that is DTensor, checkpoints by torch.distributed.checkpoint, and what is refused."""

import copy

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
import torch_ranks  # noqa: E402
from torch_oracle import same_bits  # noqa: E402

Lion = quern.torch.Lion
RECENT = torch.__version__ >= "2.6"  # torch.distributed.tensor, and FSDP2 on the CPU
KINDS = {
    "plain": dict(weight_decay=0.1),
    "stochastic": dict(stochastic_rounding=True, seed=11),
    "cautious": dict(cautious=True),
    "master": dict(master_weights=True),
}


def model():
    torch.manual_seed(5)
    made = torch.nn.Sequential(torch.nn.Linear(6, 7), torch.nn.Tanh(), torch.nn.Linear(7, 5), torch.nn.Linear(5, 1))
    return made.to(torch.bfloat16)


def tensor_module():
    if RECENT:
        import torch.distributed.tensor as module
    else:
        import torch.distributed._tensor as module
    return module


def mesh(world):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda" if torch.distributed.get_backend() == "nccl" else "cpu", (world,))


def sharded(whole, placements, on):
    """DTensors of these values; placements one a tensor."""
    distribute = tensor_module().distribute_tensor
    return [distribute(value.clone(), on, [place]) for value, place in zip(whole, placements)]


# ---- DTensors by hand: any placement, the whole's gradients known ----
def dtensors(rank, world):
    tensor = tensor_module()
    on = mesh(world)
    shapes = [(7, 5), (1, 9), (64,), (8, 3), (5, 4)]  # uneven, with an empty shard, even
    places = [tensor.Shard(0)] * 3 + [tensor.Replicate(), tensor.Shard(1)]
    for name, options in KINDS.items():
        torch.manual_seed(3)
        whole = [torch.nn.Parameter(torch.randn(shape).to(torch.bfloat16)) for shape in shapes]
        if name == "stochastic":
            whole, places_now = whole[:4], places[:4]  # Shard(1) draws numbers of its own
        else:
            places_now = places
        parts = [torch.nn.Parameter(part) for part in sharded([p.detach() for p in whole], places_now, on)]
        reference, optimizer = Lion(whole, lr=1e-3, **options), Lion(parts, lr=1e-3, **options)
        for step in range(3):
            for p in whole:
                p.grad = torch.randn(p.shape).to(p.dtype) + (0.5 if step else 0)
            for part, grad in zip(parts, sharded([p.grad for p in whole], places_now, on)):
                part.grad = grad
            reference.step()
            optimizer.step()
            for p, part in zip(whole, parts):
                assert same_bits(part.full_tensor().detach(), p.data), (name, step, p.shape)
                for entry, value in optimizer.state[part].items():
                    assert isinstance(value, tensor.DTensor) and value.placements == part.placements
                    assert same_bits(value.full_tensor(), reference.state[p][entry]), (name, entry, p.shape)


def two_dimensions(rank, world):
    from torch.distributed.device_mesh import init_device_mesh

    tensor = tensor_module()
    on = init_device_mesh("cpu", (1, world))
    torch.manual_seed(3)
    whole = torch.nn.Parameter(torch.randn(9, 4).to(torch.bfloat16))
    for places in ([tensor.Replicate(), tensor.Shard(0)], [tensor.Shard(0), tensor.Shard(0)]):
        for options in (KINDS["stochastic"], KINDS["cautious"]):
            p = torch.nn.Parameter(whole.detach().clone())
            part = torch.nn.Parameter(tensor.distribute_tensor(p.detach(), on, places))
            p.grad = torch.randn(p.shape).to(p.dtype)
            part.grad = tensor.distribute_tensor(p.grad, on, places)
            Lion([p], lr=1e-3, **options).step()
            Lion([part], lr=1e-3, **options).step()
            assert same_bits(part.full_tensor().detach(), p.data)


def columns_draw_other_numbers(rank, world):
    """Two equal shards along the second dimension must not be rounded alike."""
    tensor = tensor_module()
    (part,) = sharded([torch.full((50, 2 * 20), 1.0, dtype=torch.bfloat16)], [tensor.Shard(1)], mesh(world))
    p = torch.nn.Parameter(part)
    p.grad = torch.ones_like(p)
    Lion([p], lr=1e-3, stochastic_rounding=True).step()
    whole = p.full_tensor()
    assert not torch.equal(whole[:, :20], whole[:, 20:]) and (whole != 1).any()


def refusals(rank, world):
    tensor = tensor_module()
    on = mesh(world)
    (part,) = sharded([torch.randn(8, 4)], [tensor.Shard(0)], on)
    p = torch.nn.Parameter(part)
    optimizer = Lion([p], lr=1e-2)
    p.grad = torch.zeros_like(p)
    optimizer.step()
    before = p.full_tensor().clone()
    partial = tensor.DTensor.from_local(torch.ones(8, 4), on, [tensor.Partial()], run_check=False)
    replicated = sharded([torch.ones(8, 4)], [tensor.Replicate()], on)[0]
    for grad, sentence in ((partial, "partial"), (replicated, "redistribute")):
        p.grad = grad
        with pytest.raises(ValueError, match=f"parameter 0 of group 0.*{sentence}"):
            optimizer.step()
        assert torch.equal(p.full_tensor(), before)
        fresh = Lion([p], lr=1e-2)
        with pytest.raises(ValueError, match=sentence):
            fresh.step()
    with pytest.raises(ValueError, match="one is a DTensor"):
        saved = optimizer.state_dict()
        optimizer.load_state_dict({**saved, "state": {0: {"exp_avg": torch.zeros(8, 4)}}})


def all_of_dtensor(rank, world):  # one start of the processes costs more than all of these
    for fn in (dtensors, two_dimensions, columns_draw_other_numbers, refusals):
        fn(rank, world)


def test_dtensor(tmp_path):
    torch_ranks.run(all_of_dtensor, tmp_path)


# ---- wrappers that make the gradients ----
def ddp(rank, world):
    whole, replica = model(), torch.nn.parallel.DistributedDataParallel(model())
    reference, optimizer = Lion(whole.parameters(), lr=1e-2), Lion(replica.parameters(), lr=1e-2)
    for step in range(3):
        torch.manual_seed(100 + step)
        data = torch.randn(4, 6).to(torch.bfloat16)
        for net, opt in ((whole, reference), (replica, optimizer)):
            opt.zero_grad()
            net(data).sum().backward()  # equal on both ranks, so that their mean is exact
            opt.step()
        assert all(same_bits(p.data, q.data) for p, q in zip(whole.parameters(), replica.parameters()))


def fsdp2(rank, world):
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )
    from torch.distributed.fsdp import fully_shard

    tensor = tensor_module()
    device = mesh(world).device_type
    for options in KINDS.values():
        whole, parts = model().to(device), model().to(device)
        for layer in parts:
            fully_shard(layer, mesh=mesh(world))
        fully_shard(parts, mesh=mesh(world))
        reference, optimizer = (
            Lion(whole.parameters(), lr=1e-2, **options),
            Lion(parts.parameters(), lr=1e-2, **options),
        )

        def steps(parts=parts, whole=whole, reference=reference, optimizer=optimizer):
            for step in range(2):
                torch.manual_seed(100 + step)
                data = torch.randn(4, 6).to(torch.bfloat16).to(device)
                for net, opt in ((whole, reference), (parts, optimizer)):
                    opt.zero_grad()
                    net(data).sum().backward()
                    opt.step()
                for p, part in zip(whole.parameters(), parts.parameters()):
                    assert same_bits(part.full_tensor().detach(), p.data)

        steps()
        for part in parts.parameters():
            assert all(isinstance(value, tensor.DTensor) for value in optimizer.state[part].values())
        for full in (False, True):
            said = StateDictOptions(full_state_dict=full)
            saved = copy.deepcopy(get_optimizer_state_dict(parts, optimizer, options=said))
            entries = [dict(entry) for entry in map(dict, optimizer.state.values())]
            other = Lion(parts.parameters(), lr=0.5, **options)
            other.zero_grad()  # the state is made by a step of zeros, if there are no gradients
            values = [p.full_tensor().clone() for p in parts.parameters()]
            set_optimizer_state_dict(parts, other, saved, options=said)
            assert all(torch.equal(p.full_tensor(), value) for p, value in zip(parts.parameters(), values))
            assert other.param_groups[0]["lr"] == 1e-2
            for part, wanted in zip(parts.parameters(), entries):
                for name, value in wanted.items():
                    got = other.state[part][name]
                    assert got.dtype == value.dtype and same_bits(got.full_tensor(), value.full_tensor())
        set_optimizer_state_dict(parts, optimizer, saved, options=said)
        steps()


def wrappers(rank, world):
    ddp(rank, world)
    if RECENT:
        fsdp2(rank, world)


def test_data_parallel(tmp_path):
    torch_ranks.run(wrappers, tmp_path)


@pytest.mark.two_gpus
def test_over_nccl(tmp_path):
    torch_ranks.run(fsdp2, tmp_path, backend="nccl")
