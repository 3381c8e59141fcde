# SPDX-License-Identifier: Apache-2.0
"""Peers that are wrong in one way each, for the tests of `python -m quern.bench`: small lists, and what its oracle says
of a peer on them. It is imported behind `pytest.importorskip("torch")`."""

import torch
from quern import _ops
from quern.bench import lists, oracle, peers

CPU = torch.device("cpu")
SETTINGS = oracle.Settings(lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.1)
SHAPES = [(3001,), (40, 77), (1,), (9000,), ()]
F32 = {"param": "f32", "grad": "f32", "momentum": "f32"}
BF16 = {"param": "bf16", "grad": "bf16", "momentum": "bf16"}
MASTER = {**BF16, "master": "f32"}


def make(types=F32, shapes=SHAPES):
    return lists.make(_ops.op("lion"), shapes, types, CPU, seed=7)


def found_wrong(kind, types=F32, settings=SETTINGS, of=None):
    of = of or make(types)
    return oracle.check(kind(of, settings), of, settings)


def planted(name, formula):
    """A peer that is eager but for its formula."""
    return type(name, (peers.Eager,), {"formula": staticmethod(formula)})


def direction(m, g, beta1):
    return m.mul(beta1).add_(g, alpha=1 - beta1)


def with_sign(sign):
    def formula(weights, momenta, grads, lr, beta1, beta2, keep):
        for p, m, g in zip(weights, momenta, grads):
            p.mul_(keep).add_(sign(direction(m, g, beta1)), alpha=-lr)
            m.mul_(beta2).add_(g, alpha=1 - beta2)

    return formula


def no_op(*_):
    pass


def momentum_first(weights, momenta, grads, lr, beta1, beta2, keep):
    for p, m, g in zip(weights, momenta, grads):
        m.mul_(beta2).add_(g, alpha=1 - beta2)
        p.mul_(keep).add_(direction(m, g, beta1).sign_(), alpha=-lr)


def momentum_forgotten(weights, momenta, grads, lr, beta1, beta2, keep):
    for p, m, g in zip(weights, momenta, grads):
        p.mul_(keep).add_(direction(m, g, beta1).sign_(), alpha=-lr)


def other(**changes):
    def formula(weights, momenta, grads, lr, beta1, beta2, keep):
        given = {"lr": lr, "beta1": beta1, "beta2": beta2, "keep": keep}
        given.update({name: change(given[name]) for name, change in changes.items()})
        peers.eager_step(weights, momenta, grads, **given)

    return formula


def decay_in_gradient(weights, momenta, grads, lr, beta1, beta2, keep):
    decayed = [g + (1 - keep) / lr * p for p, g in zip(weights, grads)]
    peers.eager_step(weights, momenta, decayed, lr, beta1, beta2, 1.0)


def tail_skipped(weights, momenta, grads, *rest):
    def short(tensors):
        return [t.view(-1)[: t.numel() - t.numel() % 16] for t in tensors]

    peers.eager_step(short(weights), short(momenta), short(grads), *rest)


def gradients_eaten(weights, momenta, grads, *rest):
    peers.eager_step(weights, momenta, grads, *rest)
    torch._foreach_zero_(grads)


def not_a_number(weights, momenta, grads, *rest):
    peers.eager_step(weights, momenta, grads, *rest)
    momenta[0].view(-1)[5] = float("nan")


WRONG = {
    "no_op": (no_op, "weight values are wrong after step 1"),
    "sign_0_is_1": (with_sign(lambda c: torch.where(c >= 0, 1.0, -1.0).to(c.dtype)), "sign(0) is not taken as 0"),
    "sign_0_is_minus_1": (with_sign(lambda c: torch.where(c > 0, 1.0, -1.0).to(c.dtype)), "sign(0) is not taken as 0"),
    "no_sign": (with_sign(lambda c: c), "weight values are wrong"),
    "momentum_first": (momentum_first, "weight values are wrong"),
    "momentum_forgotten": (momentum_forgotten, "momentum values are wrong"),
    "lr_1_percent_off": (other(lr=lambda lr: 1.01 * lr), "weight values are wrong"),
    "beta2_of_another_paper": (other(beta2=lambda _: 0.98), "momentum values are wrong"),
    "decay_in_gradient": (decay_in_gradient, "are wrong"),
    "tail_skipped": (tail_skipped, "are wrong"),
    "gradients_eaten": (gradients_eaten, "step 1 changed the gradients"),
    "not_a_number": (not_a_number, "nan, it should be"),
}
