# SPDX-License-Identifier: Apache-2.0
"""A small MLP trains with quern.torch.swiglu in bfloat16 as with eager PyTorch's: the losses lie within what their
roundings can make, which is derived here, and which a gradient that is wrong by one percent leaves.

Weights and products are float32, a, b, c and their gradients bfloat16. The loss of a step is taken in double, of the
weights that it begins with, so all that parts the two is what their roundings did to the weights before.

1. One rounding to nearest bfloat16 (8 significant bits) multiplies by 1 + e, e uniform within half a last place: its
   deviation is R / m for a significand m from 1 to 2, R = 2^-7 / sqrt(12).
2. Where the two round (float32's own roundings, 2^-16 of these, are left out), counted over both, as if no rounding of
   one were the other's, though in the forward nearly all are; of what is no result R, its most:
       a, b, dc     one each                                                                      2 R / m
       c            product and silu, each                                                        2 R / m + 2 R
       da, db       the result, each; of eager before that da's dc * b, db's silu                 2 R / m + R
   Roundings of one element may depend on each other, which the sum of deviations allows for.
3. To first order the loss at step t moves by the sum of e times its derivative to 1 + e at that place, element and
   step. autograd gives the derivatives through the whole training, written out in double. Second order is e^2, 1e-5.
4. Weights move slowly, so an element's rounding may be the same step after step: over steps magnitudes are added.
   Different elements have different a, b, dc and round on their own: over them squares are added.
5. Sums of uniform numbers have lighter tails than the normal distribution's: six deviations are left once in 3e7."""

import pytest

torch = pytest.importorskip("torch")
import quern.torch  # noqa: E402

F = torch.nn.functional
BATCH, WIDTH, HIDDEN, OUTPUTS, RATE = 8192, 8, 16, 4, 0.5
STEPS = (5, 20)  # where losses are compared
R = 2**-7 / 12**0.5
BEFORE = {"a": 0, "b": 0, "c": 2, "dc": 0, "da": 1, "db": 1}  # roundings to R, beside the two of the result


def weights(seed):
    """Of the gate, of the other half, and of what follows."""
    shapes = (HIDDEN, WIDTH), (HIDDEN, WIDTH), (OUTPUTS, HIDDEN)
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=source) * shape[1] ** -0.5 for shape in shapes]


def exact(x, gate, up, down):
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


@pytest.fixture(scope="module")
def task():
    """Inputs, and what another MLP makes of them; one thread, since small products gain nothing of more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1))
    yield x, exact(x, *weights(2))
    torch.set_num_threads(threads)


def eager(a, b):
    return F.silu(a) * b


def train(activation, x, y):
    """The losses at STEPS."""
    now, losses = [w.requires_grad_() for w in weights(3)], []
    for step in range(max(STEPS) + 1):
        if step in STEPS:
            losses.append(F.mse_loss(exact(x.double(), *(w.detach().double() for w in now)), y.double()).item())
        gate, up, down = now
        c = activation((x @ gate.T).bfloat16(), (x @ up.T).bfloat16())
        slopes = torch.autograd.grad(F.mse_loss(c.float() @ down.T, y), now)
        with torch.no_grad():
            for w, slope in zip(now, slopes):
                w -= RATE * slope
    return losses


def train_exactly(x, y):
    """In double: the losses at STEPS, and by place, for each step, the factors 1 + e that they depend on and the
    deviations of these."""
    gate, up, down = (w.double() for w in weights(3))
    factors, losses = {place: [] for place in BEFORE}, []

    def rounded(place, value):
        factor = torch.ones_like(value, requires_grad=True)
        significand = 2 * torch.frexp(value.detach()).mantissa.abs()
        factors[place].append((factor, R * (2 / significand + BEFORE[place])))
        return value * factor

    for step in range(max(STEPS)):
        if step in STEPS:
            losses.append(F.mse_loss(exact(x, gate, up, down), y))
        a, b = rounded("a", x @ gate.T), rounded("b", x @ up.T)
        sigmoid = torch.sigmoid(a)
        silu = a * sigmoid
        c = rounded("c", silu * b)
        slope = 2 * (c @ down.T - y) / y.numel()
        dc = rounded("dc", slope @ down)
        da, db = rounded("da", dc * b * (sigmoid + silu * (1 - sigmoid))), rounded("db", dc * silu)
        gate, up, down = gate - RATE * da.T @ x, up - RATE * db.T @ x, down - RATE * slope.T @ c
    return [*losses, F.mse_loss(exact(x, gate, up, down), y)], factors


def bound_of(loss, factors):
    """(six deviations of the difference of two losses, what one percent more of db would change)."""
    variance = percent = 0
    for place, of_steps in factors.items():
        inputs, deviations = zip(*of_steps)
        slopes = torch.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True)
        moves = [slope.abs() * deviation for slope, deviation in zip(slopes, deviations) if slope is not None]
        variance += sum(moves).square().sum().item()
        if place == "db":
            percent = 0.01 * sum(slope.sum().item() for slope in slopes if slope is not None)
    return 6 * variance**0.5, percent


@pytest.fixture(scope="module")
def bounds(task):
    losses, factors = train_exactly(*(x.double() for x in task))
    return [(loss.item(), *bound_of(loss, factors)) for loss in losses]


def test_losses_are_eagers_within_what_roundings_make(task, bounds):
    mine, its = train(quern.torch.swiglu, *task), train(eager, *task)
    for step, loss, other, (in_double, bound, _) in zip(STEPS, mine, its, bounds):
        assert abs(loss - other) <= bound, f"step {step}: {loss} and eager's {other}, {bound} apart at most"
        assert abs(loss - in_double) <= bound, f"step {step}: {loss} and {in_double} in double"
    assert mine[-1] < 0.8 * mine[0]


class _Planted(torch.autograd.Function):
    """quern's, with 1 % too much of the gradient of b."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return quern.swiglu(a.detach(), b.detach())

    @staticmethod
    def backward(ctx, dc):
        da, db = quern.swiglu_backward(dc, *ctx.saved_tensors)
        return da, (db.float() * 1.01).bfloat16()


def test_the_bound_tells_a_gradient_that_is_wrong_by_a_percent(task, bounds):
    wrong, its = train(_Planted.apply, *task), train(eager, *task)
    *_, (_, bound, percent) = bounds
    assert abs(percent) > bound and abs(wrong[-1] - its[-1]) > bound
