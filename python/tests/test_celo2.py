# SPDX-License-Identifier: Apache-2.0
"""quern.torch.Celo2 and quern.Celo2 against a plain form of CELO2 in PyTorch's float64, which shares nothing with the
library; groups, embeddings, checkpoints, weights, and what is refused."""

import copy

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
import quern.torch  # noqa: E402
from quern import _safetensors  # noqa: E402
from quern.bench import materialised_celo2  # noqa: E402

WIDTHS = (1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3)
SHAPES = [(40, 33), (90,), (8, 6, 3, 3), (50, 16), (24, 2, 24), ()]
EMBEDDING = 3
DECAYS = torch.tensor([0.9, 0.99, 0.999], dtype=torch.float64)


def made_weights(seed=0):
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=draw) * 0.3

    made = {f"w0.{k}": normal(n, 8) for k, n in enumerate(WIDTHS)}
    return {
        **made,
        "b0": normal(8),
        "dense_w.0": normal(8, 8),
        "dense_b.0": normal(8),
        "dense_w.1": normal(8, 3),
        "dense_b.1": normal(3),
    }


WEIGHTS = made_weights()


def tensors(scale, seed):
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw) * scale for shape in SHAPES]


PARAMS, GRADS = tensors(0.1, 1), [tensors(0.01, 2 + k) for k in range(3)]


# ---- the plain form ----
def largest_two(shape, ties):
    layout = [*range(2, len(shape)), 1, 0] if ties == "jax" else range(len(shape))
    d1, d0 = sorted(layout, key=lambda d: shape[d])[-2:]
    return d0, d1


def expected(steps, lr, clip=None, ties="pylo", **options):
    params = [p.double() for p in PARAMS]
    weights = {name: value.double() for name, value in WEIGHTS.items()}
    dims = [largest_two(p.shape, ties) if p.dim() >= 2 else None for p in params]
    session = materialised_celo2.Session(weights, params, [EMBEDDING], dims)
    for t in range(steps):
        grads = [g.double() for g in GRADS[t]]
        if clip is not None:
            norm = sum((g**2).sum() for g in grads).sqrt()
            grads = [g * clip / max(norm, clip) for g in grads]
        session.step(grads, lr, **options)
    return params


OPTIONS = [
    ({"lr": 0.02}, {}),
    ({"lr": 0.02, "ties": "jax"}, {}),
    (
        {"lr": 0.02, "weight_decay": 0.1, "adam_weight_decay": 0.2, "adam_lr_mult": 3.0, "clip_grad": 0.1},
        {"clip_grad": "clip"},
    ),
    (
        {"lr": 0.02, "exp_mult": 0.2, "orthogonalize": False, "rms_mult": 0.5},
        {},
    ),
]


def in_torch(weights=None, **options):
    params = [torch.nn.Parameter(p.clone()) for p in PARAMS]
    rest = [p for k, p in enumerate(params) if k != EMBEDDING]
    groups = [{"params": rest}, {"params": [params[EMBEDDING]], "is_embedding": True}]
    return params, quern.torch.Celo2(groups, WEIGHTS if weights is None else weights, **options)


def take(params, optimizer, steps):
    for t in steps:
        for p, g in zip(params, GRADS[t]):
            p.grad = g.clone()
        optimizer.step()


def on_arrays(**options):
    flags = [k == EMBEDDING for k in range(len(SHAPES))]
    arrays, optimizer = [p.numpy().copy() for p in PARAMS], quern.Celo2(SHAPES, WEIGHTS, is_embedding=flags, **options)
    for grads in GRADS:
        optimizer.step(arrays, [g.numpy() for g in grads])
    return [torch.from_numpy(p) for p in arrays], optimizer


def same(params, others):
    return all(torch.equal(torch.as_tensor(p), torch.as_tensor(o)) for p, o in zip(params, others))


@pytest.mark.parametrize("options, names", OPTIONS)
def test_steps_are_the_plain_forms(options, names):
    params, optimizer = in_torch(**options)
    take(params, optimizer, range(3))
    arrays, _ = on_arrays(**options)
    wanted = expected(3, **{names.get(name, name): value for name, value in options.items()})
    for p, array, want, start in zip(params, arrays, wanted, PARAMS):
        moved = (want - start.double()).square().mean().sqrt()
        for found in (p.detach(), array):
            assert (found.double() - want).abs().max() <= 1e-6 + 5e-4 * moved
        assert moved > 1e-3


@pytest.mark.parametrize("options, names", OPTIONS)
def test_arrays_have_the_same_bits(options, names):
    options = {**options, "clip_grad": None}  # the norm of all gradients is a sum of NumPy's and of PyTorch's own
    params, optimizer = in_torch(**options)
    take(params, optimizer, range(3))
    arrays, plain = on_arrays(**options)
    assert same([p.detach() for p in params], arrays)
    assert plain.state_dict()[f"exp_avg.{EMBEDDING}"].shape == (800,)
    assert plain.state_dict()["exp_avg.0"].shape == (3, 40, 33)


def test_a_checkpoint_goes_on():
    params, optimizer = in_torch(lr=0.02)
    take(params, optimizer, range(2))
    state, kept = copy.deepcopy(optimizer.state_dict()), [p.detach().clone() for p in params]
    take(params, optimizer, [2])
    others, loaded = in_torch(lr=0.5)
    for other, p in zip(others, kept):
        other.data.copy_(p)
    loaded.load_state_dict(state)
    take(others, loaded, [2])
    assert same(params, others)


def test_arrays_of_a_checkpoint_go_on():
    one, two = (quern.Celo2([(20, 30), (7,)], WEIGHTS) for _ in range(2))
    params, grads = [PARAMS[0][:20, :30].numpy().copy(), PARAMS[1][:7].numpy().copy()], None
    grads = [p * 0.1 for p in params]
    one.step(params, grads)
    others = [p.copy() for p in params]
    two.load_state_dict(one.state_dict())
    one.step(params, grads)
    two.step(others, grads)
    assert same(params, others) and two.steps == 2


def test_weights_of_a_file_are_those_of_a_dict(tmp_path):
    path = str(tmp_path / "celo2.safetensors")
    _safetensors.write(path, {name: (tuple(w.shape), w.numpy().tobytes()) for name, w in WEIGHTS.items()})
    (one, first), (two, second) = in_torch(lr=0.02), in_torch(path, lr=0.02)
    take(one, first, range(2))
    take(two, second, range(2))
    assert same(one, two)


def test_a_parameter_without_a_gradient_is_not_changed():
    params, optimizer = in_torch(lr=0.02)
    params[0].grad = GRADS[0][0]
    optimizer.step()
    assert not torch.equal(params[0], PARAMS[0]) and same(params[1:], PARAMS[1:])


def refused(error, words, call):
    with pytest.raises(error, match=words):
        call()


def test_refusals_change_nothing():
    params, optimizer = in_torch(lr=0.02)
    take(params, optimizer, [0])
    kept = [p.detach().clone() for p in params]
    for name, value, error, words in (
        ("is_embedding", 1, TypeError, "is_embedding is 1, it must be True or False"),
        ("is_embedding", False, ValueError, "the exp_avg of parameter 0 of group 1"),
        ("adam_eps", -1.0, ValueError, "adam_eps"),
        ("v_decay", 1.0, ValueError, "v_decay"),
        ("adam_m_decay", 1.5, ValueError, "adam_m_decay"),
        ("clip_grad", 0.0, ValueError, "clip_grad"),
    ):
        group = optimizer.param_groups[1]
        before, group[name] = group[name], value
        refused(error, words, optimizer.step)
        group[name] = before
        assert same(params, kept)
    without = {name: w for name, w in WEIGHTS.items() if name != "w0.13"}
    refused(ValueError, "has no 'w0.13'", lambda: in_torch(without))
    refused(ValueError, "which does not belong", lambda: in_torch({**WEIGHTS, "w0.14": WEIGHTS["b0"]}))
    refused(TypeError, "is_embedding is True", lambda: quern.Celo2([(3, 4)], WEIGHTS, is_embedding=True))
    refused(ValueError, "2 values, and there are 1", lambda: quern.Celo2([(3, 4)], WEIGHTS, is_embedding=[True, False]))


def test_states_of_others_are_refused():
    params, optimizer = in_torch(lr=0.02)
    take(params, optimizer, [0])
    theirs, other = in_torch(made_weights(1))
    refused(ValueError, "checksum", lambda: other.load_state_dict(optimizer.state_dict()))
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][1]["is_embedding"] = False
    refused(ValueError, "and its exp_avg in the state that is loaded", lambda: optimizer.load_state_dict(state))
    lopt = quern.torch.SmallFCLopt([torch.nn.Parameter(p.clone()) for p in PARAMS])
    refused(ValueError, "it is one of Celo2|is one of Celo2", lambda: lopt.load_state_dict(optimizer.state_dict()))
