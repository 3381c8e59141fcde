# SPDX-License-Identifier: Apache-2.0
"""Tensors' version counters move where a call wrote, and nowhere else: by them autograd knows what it has kept and may
still use. For every op, function, shipped kernel and optimizer."""

import pytest

torch = pytest.importorskip("torch")
import quern  # noqa: E402
import quern.torch  # noqa: E402
import quern.torch.ops  # noqa: E402
from torch_lopt_models import ELO, MLP, RNN, WEIGHTS, SmallFCLopt, VeLO  # noqa: E402
from written_cases import CASES, NAMES  # noqa: E402


def maker():
    source = torch.Generator().manual_seed(7)

    def make(shape, dtype, spd=False):
        values = torch.rand(shape, generator=source, dtype=torch.float64) + 0.5
        if spd:
            values = values @ values.mT + shape[-1] * torch.eye(shape[-1])
        return values.to(getattr(torch, dtype))

    return make


def bits(tensor):
    return bytes(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).tolist())


def compare(call, tensors):
    """Names of the tensors that the call changed; their versions must say the same."""
    before = {name: (bits(tensor), tensor._version) for name, tensor in tensors.items()}
    call()
    changed = {name for name, tensor in tensors.items() if bits(tensor) != before[name][0]}
    counted = {name for name, tensor in tensors.items() if tensor._version != before[name][1]}
    assert counted == changed
    return changed


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_versions_say_what_was_written(case):
    call, tensors, said = case(maker())
    assert compare(call, tensors) == said


@pytest.mark.parametrize("one", [False, True], ids=["lists", "single"])
@pytest.mark.parametrize("name", quern.torch.ops.__all__)
def test_versions_after_a_torch_op(name, one):
    op = getattr(quern.torch.ops, name)
    settings = {"lr": 0.25} if "lr" in op.op.params else {}
    for row, types in zip(op.op.rows, op.op.types):
        make = maker()
        given = [(role, dtype) for role, dtype in zip(op.op.roles, types) if dtype != "none"]
        tensors = {role.framework_name if one else role.plural: make((3, 8), NAMES[d]) for role, d in given}
        words = tensors if one else {key: [tensor] for key, tensor in tensors.items()}
        for _ in range(2):  # the second call goes by what the first one left
            changed = compare(lambda: op(**words, **settings), tensors)  # noqa: B023
            for tensor in changed:
                tensors[tensor].data.fill_(3)
        assert len(changed) == sum(access & 2 > 0 for _, access in row)


OPTIMIZERS = {
    "Lion": lambda params: quern.torch.Lion(params, lr=0.25),
    "Lion with masters": lambda params: quern.torch.Lion(params, lr=0.25, master_weights=True),
    "SmallFCLopt": lambda params: SmallFCLopt(params, WEIGHTS, lr=1.0),
    "ELO": lambda params: ELO(params, WEIGHTS, lr=1.0),
    "VeLO": lambda params: VeLO(params, MLP, RNN, 10),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_versions_after_an_optimizers_step(kind):
    dtype = torch.bfloat16 if "masters" in kind else torch.float32
    params = [torch.nn.Parameter(maker()((3, 8), "float32").to(dtype)) for _ in range(2)]
    optimizer = OPTIMIZERS[kind](params)
    loss = [torch.tensor(2.0)] if kind == "VeLO" else []
    for step in range(4):  # the first makes the state, a plan follows
        for k, param in enumerate(params):
            param.grad = torch.full_like(param, 0.5 + step + k)
        tensors = {f"param{k}": p for k, p in enumerate(params)} | {f"grad{k}": p.grad for k, p in enumerate(params)}
        tensors |= {f"loss{k}": one for k, one in enumerate(loss)}
        state = {f"{key}{k}": value for k, p in enumerate(params) for key, value in optimizer.state[p].items()}
        state = {key: value for key, value in state.items() if isinstance(value, torch.Tensor) and key != "step0"}
        changed = compare(lambda: optimizer.step(*loss), tensors | state)
        assert {"param0", "param1"} <= changed and not {"grad0", "grad1", "loss0"} & changed
        assert step == 0 or len(changed) > 2


# ---- autograd about what is only read ----
ACTIVATIONS = ["swiglu", "clamped", "geglu", "geglu_erf", "reglu", "glu"]


def leaf(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def halves(made, activation):
    """From one tensor that holds both."""
    both = torch.cat((made, made.detach() + 0.5), -1)
    return quern.torch.swiglu(both, layout="halves", activation=activation)


def apart(made, activation):
    return quern.torch.swiglu(made, made.detach() + 0.5, activation=activation)


@pytest.mark.parametrize("form", [apart, halves])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("saves", [torch.sigmoid, torch.tanh, torch.relu, lambda x: torch.softmax(x, -1), torch.exp])
def test_a_gate_that_another_op_has_saved(saves, activation, form):
    """Its own backward reads it after ours; an auxiliary loss on it too, and a second backward over one graph."""
    x = leaf(3, 6)
    gate = saves(x)
    loss, other = form(gate, activation).sum(), (gate * gate).sum()
    (once,) = torch.autograd.grad(loss + other, x, retain_graph=True)
    (again,) = torch.autograd.grad(loss, x, retain_graph=True)
    (rest,) = torch.autograd.grad(other, x)
    torch.testing.assert_close(once, again + rest)


@pytest.mark.parametrize("as_gate", [True, False])
def test_either_half_may_be_a_saved_one(as_gate):
    h = torch.nn.Linear(4, 5)(torch.randn(3, 4))
    a, b = (torch.sigmoid(h), h) if as_gate else (h, torch.sigmoid(h))
    quern.torch.swiglu(a, b).sum().backward()


def test_two_losses_over_one_graph_are_their_sum():
    a, b = leaf(3, 5), leaf(3, 5, seed=2)
    c = quern.torch.swiglu(a, b)
    whole = torch.autograd.grad(c.sum() + c.square().sum(), (a, b), retain_graph=True)
    one, other = torch.autograd.grad(c.sum(), (a, b), retain_graph=True), torch.autograd.grad(c.square().sum(), (a, b))
    for all_, first, second in zip(whole, one, other):
        torch.testing.assert_close(all_, first + second)


def test_a_function_of_a_kernel_reads_its_inputs():
    """Of quern.torch.function and register too: the vjp's kernels only read what autograd has kept."""
    kernel = quern.metal_kernel("square", ["x"], ["y"], "uint i = thread_position_in_grid.x; y[i] = x[i] * x[i];")

    def square(x):
        return kernel(inputs=[x], grid=(x.numel(), 1, 1), output_shapes=[x.shape], output_dtypes=[x.dtype])[0]

    f = quern.torch.function(quern.function(square, vjp=lambda given, dy, y: (2 * given * dy,)))
    x = leaf(7)
    y = torch.sigmoid(x)
    loss = f(y).sum() + (y * y).sum()
    loss.backward(retain_graph=True)
    once = x.grad.clone()
    loss.backward()
    torch.testing.assert_close(x.grad, 2 * once)
