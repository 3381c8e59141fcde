# SPDX-License-Identifier: Apache-2.0
"""What quern.torch.Lion remembers from step to step against an optimizer that remembers nothing: both are changed alike
between steps, at random, in every way that a training script may, and give the same bits, counters and refusals."""

import random

import pytest

torch = pytest.importorskip("torch")
import quern.torch  # noqa: E402
from quern.torch import _options  # noqa: E402
from quern.torch._watch import has_table  # noqa: E402

SHAPES = [(3, 5), (7,), (4, 4), (2, 3, 2), (1, 6), ()]
DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.float16]


class Pair:
    """Two models of the same numbers; the second one's optimizer forgets all plans before each step."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        torch.manual_seed(seed)
        values = [torch.randn(shape) for shape in SHAPES]
        dtype = self.rng.choice([torch.float32, torch.float32, torch.bfloat16])
        self.models = [[torch.nn.Parameter(value.to(dtype)) for value in values] for _ in range(2)]
        self.optimizers = [
            quern.torch.Lion(
                [{"params": params[:4]}, {"params": params[4:], "lr": torch.tensor(0.01)}], lr=0.1, betas=[0.9, 0.99]
            )
            for params in self.models
        ]
        self.heard = [[], []]

    def each(self, change):
        """Calls change(optimizer, parameters) on both, with equal random numbers; returns what was raised."""
        state, raised = self.rng.getstate(), []
        for optimizer, params, heard in zip(self.optimizers, self.models, self.heard):
            self.rng.setstate(state)
            torch.manual_seed(self.rng.randrange(1 << 30))
            try:
                raised.append(change(optimizer, params, heard))
            except (RuntimeError, ValueError, TypeError) as error:
                raised.append((type(error), str(error)))
        return raised

    def values(self):
        found = []
        for optimizer, params in zip(self.optimizers, self.models):
            state = [[(key, value) for key, value in sorted(optimizer.state[p].items())] for p in params]
            steps = [group["step"] for group in optimizer.param_groups]
            found.append((params, state, steps, [p.grad for p in params]))
        return found


def one_of(pair, params):
    return params[pair.rng.randrange(len(params))]


def new_gradients(pair):
    odds = pair.rng.choice([0.0, 0.0, 0.1])

    def change(optimizer, params, _):
        for p in params:
            p.grad = torch.randn(p.shape).to(p.dtype) if pair.rng.random() >= odds else None

    return change


def on_one(function):
    def make(pair):
        def change(optimizer, params, _):
            p = one_of(pair, params)
            with torch.no_grad():
                function(pair, optimizer, p)

        return change

    return make


def no_gradient(pair, optimizer, p):
    p.grad = None


def sparse_gradient(pair, optimizer, p):
    p.grad = torch.randn(p.shape).to(p.dtype).to_sparse() if p.dim() else None


def odd_gradient(pair, optimizer, p):
    if p.dim() > 1:
        p.grad = torch.randn((*p.shape[:-1], 2 * p.shape[-1])).to(p.dtype)[..., ::2]


def negated_gradient(pair, optimizer, p):
    if p.dtype is torch.float32:
        p.grad = torch.randn(p.shape, dtype=torch.complex64).conj().imag


def wider_gradient(pair, optimizer, p):
    p.grad = None
    p.grad = torch.randn(p.shape).to(p.dtype)


def new_data(pair, optimizer, p):
    p.data = p.data.clone()


def turned_data(pair, optimizer, p):
    """At the same address, in another order; its gradient is another then."""
    if p.dim() == 2 and p.shape[0] == p.shape[1]:
        p.data = p.data.t()
        p.grad = None


def other_shape(pair, optimizer, p):
    if p.dim() == 1:
        p.data = torch.randn(pair.rng.randrange(1, 9)).to(p.dtype)
        p.grad = torch.ones_like(p)
        optimizer.state.pop(p, None)


def other_type(pair, optimizer, p):
    dtype = pair.rng.choice(DTYPES)
    p.grad = None
    p.data = p.data.to(dtype)
    p.grad = torch.ones_like(p)
    optimizer.state.pop(p, None)


def state_replaced(pair, optimizer, p):
    if optimizer.state[p]:
        optimizer.state[p] = {key: value.clone() for key, value in optimizer.state[p].items()}


def entry_replaced(pair, optimizer, p):
    for key, value in optimizer.state[p].items():
        optimizer.state[p][key] = value.clone()


def entry_moved(pair, optimizer, p):
    for value in optimizer.state[p].values():
        value.data = value.data.clone()


def entry_freed(pair, optimizer, p):
    for value in optimizer.state[p].values():
        value.untyped_storage().resize_(0)
        value.data = torch.zeros(value.shape, dtype=value.dtype)


def state_dropped(pair, optimizer, p):
    optimizer.state.pop(p, None)


def option(pair):
    name, values = pair.rng.choice(
        [
            ("lr", [0.1, 0.03, torch.tensor(0.2), -1.0]),
            ("betas", [(0.9, 0.99), [0.5, 0.5], (0.9, 2.0)]),
            ("weight_decay", [0.0, 0.1, 1]),
            ("cautious", [True, False]),
            ("maximize", [True, False]),
            ("stochastic_rounding", [True, False]),
            ("eps", [None, 1e-3]),
            ("seed", [0, 7, 1 << 40]),
        ]
    )

    def change(optimizer, params, _):
        group = optimizer.param_groups[pair.rng.randrange(2)]
        value = pair.rng.choice(values)
        group[name] = value.clone() if isinstance(value, torch.Tensor) else list(value) if name == "betas" else value

    return change


def inside_an_option(pair):
    """Changed where it is: the group's object stays the one that it was."""
    name = pair.rng.choice(["lr", "betas"])

    def change(optimizer, params, _):
        for group in optimizer.param_groups:
            if name == "lr" and isinstance(group["lr"], torch.Tensor):
                group["lr"].mul_(0.5)
            if name == "betas":
                group["betas"][0] = pair.rng.random()

    return change


def loaded(pair):
    return lambda optimizer, params, _: optimizer.load_state_dict(optimizer.state_dict())


def regrouped(pair):
    def change(optimizer, params, _):
        one, other = optimizer.param_groups
        if len(one["params"]) > 1:
            other["params"].append(one["params"].pop())

    return change


def hooked(pair):
    def change(optimizer, params, heard):
        optimizer.register_step_pre_hook(lambda *_: heard.append("pre"))

    return change


def scaled(pair):
    found, scale = pair.rng.choice([0.0, 1.0]), pair.rng.choice([1.0, 4.0])

    def change(optimizer, params, _):
        optimizer.found_inf, optimizer.grad_scale = torch.tensor(found), torch.tensor(scale)

    return change


def unscaled(pair):
    def change(optimizer, params, _):
        for name in ("found_inf", "grad_scale"):
            if hasattr(optimizer, name):
                delattr(optimizer, name)

    return change


def moves(pair):
    """All parameters, as module.to() does it."""

    def change(optimizer, params, _):
        for p in params:
            p.data = p.data.clone()

    return change


ONE = [no_gradient, sparse_gradient, odd_gradient, negated_gradient, wider_gradient, new_data, turned_data, other_shape]
ONE += [other_type, state_replaced, entry_replaced, entry_moved, entry_freed, state_dropped]
CHANGES = [
    *map(on_one, ONE),
    *4 * [option],
    *4 * [inside_an_option],
    loaded,
    regrouped,
    hooked,
    scaled,
    unscaled,
    moves,
]


def step(pair):
    with_closure = pair.rng.random() < 0.2

    def change(optimizer, params, heard):
        if optimizer is pair.optimizers[1]:
            optimizer._plans.clear()
        versions = [p._version for p in params]
        loss = optimizer.step((lambda: heard.append("loss") or 3.0) if with_closure else None)
        return loss, [p._version - version for p, version in zip(params, versions)]

    return pair.each(change)


def same(one, other):
    if isinstance(one, torch.Tensor):
        if one.layout is not torch.strided:
            return one.layout is other.layout
        return (
            one.dtype is other.dtype and one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())
        )
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("seed", range(60))
def test_as_an_optimizer_that_remembers_nothing(seed):
    pair = Pair(seed)
    refused = 0
    for _ in range(12):
        pair.each(new_gradients(pair))
        for _ in range(pair.rng.randrange(3)):
            change = pair.rng.choice(CHANGES)(pair)
            mine, its = pair.each(change)
            assert mine == its
        for _ in range(pair.rng.randrange(1, 4)):
            mine, its = step(pair)
            assert mine == its
            refused += isinstance(mine[0], type)
            assert same(*pair.values()), "after a step"
    assert pair.heard[0] == pair.heard[1]


def test_every_option_is_looked_at():
    """What the params are made of is compared at each step."""

    class Heard(dict):
        def __getitem__(self, name):
            read.add(name)
            return super().__getitem__(name)

    group = Heard(quern.torch.Lion([torch.nn.Parameter(torch.zeros(1))]).param_groups[0])
    read = set()
    _options.values_of(group)
    needed, read = read | {"capturable"}, set()
    _options.read(group)
    assert read == needed


@pytest.fixture
def swaps():
    before = torch.__future__.get_swap_module_params_on_conversion()
    yield torch.__future__.set_swap_module_params_on_conversion
    torch.__future__.set_swap_module_params_on_conversion(before)


def stepped_once():
    """An optimizer of a parameter of ones after its first step, the parameter, and another of fives."""
    one, other = (torch.nn.Parameter(torch.full((4,), value)) for value in (1.0, 5.0))
    one.grad, other.grad = torch.ones(4), -torch.ones(4)
    optimizer = quern.torch.Lion([one], lr=0.5)
    optimizer.step()
    return optimizer, one, other


def test_swapped_tensors_are_followed_where_that_is_said_before(swaps):
    swaps(True)
    optimizer, one, other = stepped_once()
    torch.utils.swap_tensors(one, other)
    optimizer.step()
    assert one.tolist() == [5.5] * 4 and other.tolist() == [0.5] * 4


@pytest.mark.skipif(not has_table([torch.zeros(1)]), reason="before torch 2.10 no table of DLPack's keeps references")
def test_swapping_is_refused_and_changes_nothing_where_it_is_not(swaps):
    swaps(False)
    optimizer, one, other = stepped_once()
    with pytest.raises(RuntimeError, match="use_count"):
        torch.utils.swap_tensors(one, other)
    optimizer.step()
    assert one.tolist() == [0.0] * 4 and other.tolist() == [5.0] * 4
