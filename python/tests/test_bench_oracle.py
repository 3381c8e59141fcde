# SPDX-License-Identifier: Apache-2.0
"""The oracle of `python -m quern.bench`: it catches planted wrong peers, lets those pass that are right, and counts the
signs that rounding leaves open."""

import math

import pytest

torch = pytest.importorskip("torch")

from bench_peers import BF16, F32, MASTER, SETTINGS, SHAPES, WRONG, found_wrong, make, other, planted, with_sign  # noqa: E402
from quern.bench import lists, oracle, peers  # noqa: E402

MODULES = {"lion-pytorch": "lion_pytorch"}  # where it is not the distribution's name


@pytest.mark.parametrize("types", [F32, BF16, MASTER], ids=["f32", "bf16", "master"])
@pytest.mark.parametrize("name", WRONG)
def test_a_planted_wrong_peer_is_found(name, types):
    formula, words = WRONG[name]
    check = found_wrong(planted(name, formula), types)
    assert words in check.wrong
    assert not check.record()["right"]


@pytest.mark.parametrize("keep", [lambda keep: 1.0, lambda keep: 1 - (1 - keep) / 1e-4])
def test_a_decay_that_is_missing_or_is_not_multiplied_by_lr(keep):
    assert "weight values are wrong" in found_wrong(planted("decay", other(keep=keep))).wrong


def test_a_copy_that_is_not_its_master():
    class Stale(peers.Eager):
        def step(self):
            self.formula(self.of.weights, self.of.momenta, self.grads, *self.arguments)

    assert "parameter values are wrong" in found_wrong(Stale, MASTER, oracle.Settings(1e-2, 0.9, 0.99, 0.1)).wrong


def test_gradients_that_a_peer_remembers():
    """Each step finds other gradients, so that one who keeps the first ones is wrong from the second step on."""

    class Stale(peers.Eager):
        def use(self, grads):
            if not hasattr(self, "grads"):
                super().use([g.clone() for g in reversed(self.of.other_grads)][::-1])

    assert "after step 2" in found_wrong(Stale).wrong


@pytest.mark.parametrize("types", [F32, BF16, MASTER], ids=["f32", "bf16", "master"])
def test_eager_is_right(types):
    check = found_wrong(peers.Eager, types)
    assert check.wrong == ""
    assert check.steps == oracle.STEPS
    elements = sum(math.prod(shape) for shape in SHAPES)
    assert check.elements == oracle.STEPS * elements * (3 if types is MASTER else 2)


def test_what_list_functions_do_to_bf16_on_a_processor():
    """The documents name it: in place they round the factor to storage, so that the momentum decays faster."""
    momentum = torch.linspace(0.5, 1.0, 1000).bfloat16()
    done = [momentum.clone()]
    torch._foreach_mul_(done, 0.99)
    is_rounded = torch.equal(done[0], momentum * torch.tensor(0.98828125, dtype=torch.bfloat16))
    check = found_wrong(peers.Foreach, BF16)
    assert ("momentum values are wrong" in check.wrong) == is_rounded
    assert found_wrong(peers.Foreach).wrong == ""


@pytest.mark.parametrize("name", peers.LION)
def test_every_peer_that_is_here_is_right(name):
    """bitsandbytes and the others are held to the same contract; what is not installed is skipped by name."""
    kind = peers.LION[name]
    if kind.package not in ("torch", "quern"):
        pytest.importorskip(MODULES.get(kind.package, kind.package))
    if "cpu" not in kind.devices:
        with pytest.raises(peers.Absent, match="cuda only"):
            kind(make(), SETTINGS)
        return
    wrong = found_wrong(kind).wrong
    if name == "deepspeed":  # its vector path takes the sign bit
        assert "sign(0) is not taken as 0" in wrong
    else:
        assert wrong == ""


@pytest.mark.parametrize("types", [BF16, {**BF16, "momentum": "f32"}, MASTER], ids=str)
def test_quern_is_right_over_16_bits(types):
    check = found_wrong(peers.Quern, types)
    assert check.wrong == "" and check.worst > 0


def near_zero(elements):
    """Lists in which the sign's argument is within rounding of zero, and not zero, at that many elements."""
    of = make(shapes=[(100_000,)])
    for grads in (of.grads, of.other_grads):
        grads[0][:elements] = 1e-3
    of.momenta[0][:elements] = -(1 - SETTINGS.beta1) / SETTINGS.beta1 * 1e-3 * (1 + 2.0**-23)
    argument = oracle.lion(oracle.View(of).values(), SETTINGS).argument[:elements]
    assert float(argument.abs().max()) < 1e-10 and float(argument.abs().min()) > 0
    return of, float(torch.sign(argument[0]))


@pytest.mark.parametrize(
    ("elements", "wrong"), [(5, ""), (50, "50 of 100000 signs differ after step 1; rounding explains 8")]
)
def test_a_sign_within_rounding_of_zero_is_free_and_counted(elements, wrong):
    of, sign = near_zero(elements)
    turned = planted("Turned", with_sign(lambda c: torch.where(c.abs() < 1e-10, -sign * (c != 0), torch.sign(c))))
    of.momenta[0][:elements] *= 1 + 2.0**-22  # so that none is rounded to zero
    check = oracle.check(turned(of, SETTINGS), of, SETTINGS)
    assert check.wrong == wrong
    assert check.signs == elements


def test_adamw_is_held_against_its_own_formula():
    class Wrong(peers.AdamW):
        def make(self, params, **settings):
            return super().make(params, **{**settings, "weight_decay": 0.2})

    assert found_wrong(peers.AdamW).wrong == ""
    assert "weight values are wrong" in found_wrong(Wrong).wrong


# ---- what is looked at ----
def test_windows_hold_beginnings_and_ends_and_no_more_than_asked():
    lengths = [0, 1, 5000, 4_000_000, 70_000]
    parts = list(lists.windows(lengths, 1 << 18))
    assert parts == list(lists.windows(lengths, 1 << 18))
    assert all(start >= 0 and n > 0 and start + n <= lengths[k] for k, start, n in parts)
    for k, length in enumerate(lengths):
        starts = [(start, n) for tensor, start, n in parts if tensor == k]
        assert bool(starts) == bool(length)
        if length:
            assert starts[0][0] == 0 and sum(starts[-1]) == length
    assert sum(n for _, _, n in parts) <= 1.1 * (1 << 18)
    assert sum(n for _, _, n in lists.windows(lengths, 1 << 40)) == sum(lengths)


def test_data_have_zeros_of_both_signs_and_two_sets_of_gradients():
    of = make()
    zeros = of.grads[3].view(-1)[of.grads[3].view(-1) == 0]
    assert 0 < int(torch.signbit(zeros).sum()) < len(zeros)
    assert not torch.equal(of.grads[0], of.other_grads[0])
    before = of.params[0].clone()
    of.fill(7)
    assert torch.equal(before, of.params[0])
    assert abs(float(of.params[3].std()) / 0.02 - 1) < 0.1 and abs(float(of.grads[3].std()) / 1e-3 - 1) < 0.1
