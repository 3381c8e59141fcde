# SPDX-License-Identifier: Apache-2.0
"""Learned optimizers on plain arrays: golden vectors of several steps, what is refused (and then nothing has changed),
state through dictionaries and files, and arrays of other kinds. Catches an option that does not reach the library, a
step that is not counted, state that is of another array, a refusal that comes after something was written."""

import functools
import re

import pytest

np = pytest.importorskip("numpy")

import lopt_golden  # noqa: E402
import quern  # noqa: E402
from lopt_arrays import (  # noqa: E402
    SHAPES,
    arrays,
    check_golden_state,
    check_golden_step,
    check_option,
    check_signature,
    copied,
    same,
    same_state,
)
from quern import _lopt, _lopt_abi, _safetensors  # noqa: E402

WEIGHTS = lopt_golden.weights()
CASES = lopt_golden.cases()
KINDS = {"small_fc_lopt": quern.SmallFCLopt, "elo": quern.ELO}


def made(kind=quern.SmallFCLopt, shapes=SHAPES, **options):
    return kind(shapes, WEIGHTS, **options)


# ---- options, and numbers that Python has from C's headers ----
@pytest.mark.parametrize("family", [_lopt.SMALL_FC, _lopt.ELO, _lopt.VELO], ids=lambda family: family.op.name)
def test_default_options_fill_the_ops_defaults(family):
    wanted, options = family.op.defaults(), dict(family.defaults)
    if family is _lopt.VELO:  # num_steps has no default, and is refused where there is none
        assert options["num_steps"] is None and wanted.num_steps == 0
        options["num_steps"] = wanted.num_steps = 7
    got = _lopt.params_of(family, options, 0)
    members = [name for name, _ in family.op.Params._fields_]
    assert [getattr(got, name) or 0 for name in members] == [getattr(wanted, name) or 0 for name in members]


@pytest.mark.parametrize("kind", [quern.SmallFCLopt, quern.ELO, quern.VeLO])
def test_signatures_have_these_defaults(kind):
    check_signature(kind)


def test_sizes_are_the_headers():
    text = (lopt_golden.ROOT / "include/quern/velo.h").read_text(encoding="utf-8")
    sizes = dict(re.findall(r"QN_VELO_(\w+) = (\d+)", text))
    assert int(sizes["LOSS_SKIPPED"]) == _lopt_abi.LOSS_SKIPPED


# ---- numbers ----
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_golden(case):
    assert len(case.tensors) == {"reference": 13, "compat": 7, "elo": 12, "jax": 7, "elo_jax": 2}[case.name]
    params = [tensor.start.copy() for tensor in case.tensors]
    shapes = [tensor.shape for tensor in case.tensors]
    optimizer = KINDS[case.op](shapes, WEIGHTS, case.lr, case.weight_decay, ties=case.ties)
    optimizer.pylo_cuda_compat = case.compat
    for t in range(lopt_golden.STEPS):
        before = [p.copy() for p in params]
        optimizer.step(params, [tensor.grads[t] for tensor in case.tensors])
        check_golden_step(params, before, [tensor.wanted[t] for tensor in case.tensors])
    state = optimizer.state_dict()
    assert state["step"] == lopt_golden.STEPS
    for k, tensor in enumerate(case.tensors):
        check_golden_state(state, k, tensor.state)


def stepped(optimizer, steps=2, first=1):
    params = arrays()
    for t in range(steps):
        optimizer.step(params, arrays(first + t))
    return params


OPTIONS = dict(
    lr=0.5,
    weight_decay=0.1,
    step_mult=0.02,
    exp_mult=0.5,
    max_grad_norm=0.01,
    m_decays=(0.5, 0.99, 0.999),
    v_decay=0.9,
    factor_decays=(0.5, 0.99, 0.999),
    lr_scale=[1, 0.5, 1],
    pylo_cuda_compat=True,
    clip_grad=0.01,
)


@pytest.mark.parametrize("kind", KINDS.values())
@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_is_told_the_library_at_the_beginning_and_later(kind, name):
    own = {quern.SmallFCLopt: ("step_mult", "max_grad_norm"), quern.ELO: ("clip_grad",)}
    others = [other for key, names in own.items() if key is not kind for other in names]
    if name in others:
        with pytest.raises(TypeError, match=name):
            made(kind, **{name: OPTIONS[name]})
        return
    check_option(functools.partial(made, kind), stepped, name, OPTIONS[name])


def test_learning_rates_of_single_arrays_are_scaled():
    one, two = made(lr_scale=[0.25, 1.0, 0.0], weight_decay=0.1), made(lr=0.25, weight_decay=0.1)
    start, got, wanted = arrays(), stepped(one), stepped(two)
    assert (got[0] == wanted[0]).all() and (got[1] != wanted[1]).any() and got[2] == start[2]


def test_each_gradient_is_bounded_by_itself():
    grads = arrays(1)
    norms = [np.linalg.norm(g.astype(np.float64)) for g in grads]
    bound = float(np.median(norms))
    params, others = arrays(), arrays()
    kept = [g.copy() for g in grads]
    made(max_grad_norm=bound).step(params, grads)
    made().step(others, [np.asarray(g * np.float32(min(1.0, bound / (n + 1e-6)))) for g, n in zip(grads, norms)])
    assert same(grads, kept)
    for p, q in zip(params, others):
        np.testing.assert_allclose(p, q, rtol=1e-6, atol=1e-7)
    assert any((p != q).any() for p, q in zip(params, stepped(made(), 1)))


def test_all_gradients_are_bounded_together():
    grads = arrays(1)
    grads[0][0, 0], grads[1][2] = np.nan, 3.0
    clean = [np.asarray(np.nan_to_num(g)) for g in grads]
    norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in clean))
    params, others, kept = arrays(), arrays(), [g.copy() for g in grads]
    made(quern.ELO, clip_grad=norm / 4).step(params, grads)
    made(quern.ELO).step(others, [np.asarray(g / np.float32(4)) for g in clean])
    assert all(np.array_equal(g, k, equal_nan=True) for g, k in zip(grads, kept))
    for p, q in zip(params, others):
        np.testing.assert_allclose(p, q, rtol=1e-6, atol=1e-9)
    small, unbounded = arrays(), arrays()
    made(quern.ELO, clip_grad=norm * 2).step(small, grads)
    made(quern.ELO).step(unbounded, clean)
    assert same(small, unbounded)


# ---- weights ----
def write(path, weights):
    _safetensors.write(path, {name: (w.shape, np.ascontiguousarray(w).tobytes()) for name, w in weights.items()})
    return path


def test_weights_of_a_file_and_of_a_dict_are_the_same(tmp_path):
    path = write(tmp_path / "weights.safetensors", WEIGHTS)
    transposed = {name: np.asfortranarray(value) for name, value in reversed(WEIGHTS.items())}
    one, two, three = (stepped(quern.SmallFCLopt(SHAPES, weights)) for weights in (WEIGHTS, str(path), transposed))
    assert all((p == q).all() and (p == r).all() for p, q, r in zip(one, two, three))


BIAS = "network.input.bias"
WRONG_WEIGHTS = {
    "missing": (lambda w: w.pop(BIAS), ValueError, r"weights has no 'network\.input\.bias'"),
    "unexpected": (lambda w: w.update(extra=w[BIAS]), ValueError, "weights has 'extra', which does not belong"),
    "shape": (
        lambda w: w.update({BIAS: w[BIAS][:-1]}),
        ValueError,
        r"bias'\] has the shape \(31,\), it must be \(32,\)",
    ),
    "dtype": (lambda w: w.update({BIAS: w[BIAS].astype("f8")}), TypeError, r"bias'\] is float64, it must be float32"),
    "NaN": (lambda w: w.update({BIAS: w[BIAS] + np.nan}), ValueError, r"input\.bias'\] is nan at element 0"),
    "no array": (lambda w: w.update({BIAS: 3}), TypeError, r"bias'\] is an int, it must be an array"),
}


@pytest.mark.parametrize("what", WRONG_WEIGHTS)
def test_wrong_weights_are_named(what):
    spoil, error, sentence = WRONG_WEIGHTS[what]
    weights = dict(WEIGHTS)
    spoil(weights)
    with pytest.raises(error, match=f"^SmallFCLopt: .*{sentence}"):
        quern.SmallFCLopt(SHAPES, weights)


def test_wrong_files_are_named(tmp_path):
    path = tmp_path / "weights.safetensors"
    with pytest.raises(OSError, match=r"SmallFCLopt: weights: .*weights.safetensors: No such file or directory$"):
        quern.SmallFCLopt(SHAPES, path)
    with pytest.raises(OSError, match="btherien/mulo: No such .*; nothing is downloaded: give the path of the safe"):
        quern.SmallFCLopt(SHAPES, "btherien/mulo")
    write(path, {name: value for name, value in WEIGHTS.items() if name != BIAS})
    with pytest.raises(ValueError, match=r'ELO: weights: .*there is no tensor "network\.input\.bias"'):
        quern.ELO(SHAPES, path)
    with pytest.raises(TypeError, match="mlp is None, it must be the path of a safetensors file or a dict"):
        quern.VeLO(SHAPES, None, None, 9)


@pytest.mark.parametrize("make", [quern.SmallFCLopt, quern.ELO, quern.Celo2])
def test_weights_come_with_quern(make):
    """Without a file and with None; they move a parameter against its gradient."""
    moved = []
    for optimizer in (make([(4, 5)]), make([(4, 5)], None)):
        param = np.zeros((4, 5), np.float32)
        for _ in range(3):
            optimizer.step([param], [np.ones((4, 5), np.float32)])
        moved.append(param)
    assert np.array_equal(*moved) and moved[0].mean() < 0


# ---- what is refused ----
def none(lists):
    lists[1][1] = None


def shape(role, k, new):
    def change(lists):
        lists[role][k] = np.zeros(new, np.float32)

    return change


def dtype(role, kind):
    def change(lists):
        lists[role][0] = lists[role][0].astype(kind)

    return change


def frozen(lists):
    lists[0][0].flags.writeable = False


def strided(role):
    def change(lists):
        lists[role][0] = np.asfortranarray(lists[role][0])

    return change


REFUSED = {
    "a gradient that is missing": (none, ValueError, r"grads\[1\] is missing"),
    "gradients that are missing": (lambda lists: lists[1].pop(), ValueError, "grads has 2 arrays, and .* made for 3"),
    "another shape": (shape(0, 1, 6), ValueError, r"params\[1\] has the shape \(6,\), and .* made for \(5,\)"),
    "another gradient": (shape(1, 0, (4, 3)), ValueError, r"grads\[0\] has the shape \(4, 3\), and .* \(3, 4\)"),
    "float64": (dtype(0, np.float64), TypeError, r"params\[0\] is float64, it must be float32"),
    "float16": (dtype(1, np.float16), TypeError, r"grads\[0\] is float16"),
    "integers": (dtype(1, np.int32), TypeError, r"grads\[0\] is int32; grads may be float32"),
    "read-only": (frozen, ValueError, r"params\[0\] \(ndarray\) is read-only"),
    "columns first": (strided(0), ValueError, r"param\[0\] .* is not row-major: make it contiguous"),
    "columns first in a gradient": (strided(1), ValueError, r"grad\[0\] .* is not row-major"),
    "shared memory": (lambda lists: lists[0].__setitem__(1, lists[0][0].ravel()[:5]), ValueError, "share memory"),
}


@pytest.mark.parametrize("kind", KINDS.values())
@pytest.mark.parametrize("what", REFUSED)
def test_refused_and_nothing_has_changed(what, kind):
    change, error, sentence = REFUSED[what]
    optimizer = made(kind)
    params = arrays()
    optimizer.step(params, arrays(1))
    lists = [params, arrays(2)]
    change(lists)
    kept = [[a.copy() for a in part if a is not None] for part in lists]
    state = copied(optimizer.state_dict())
    with pytest.raises(error, match=sentence):
        optimizer.step(*lists)
    for part, copies in zip(lists, kept):
        assert same([a for a in part if a is not None], copies)
    assert same_state(optimizer.state_dict(), state)


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        (dict(lr=-1.0), ValueError, "lr is -1"),
        (dict(lr="1"), TypeError, "lr is '1', it must be a number"),
        (dict(weight_decay=float("nan")), ValueError, "weight_decay is nan"),
        (dict(v_decay=1.0), ValueError, "v_decay is 1"),
        (dict(m_decays=(0.9, 0.99)), ValueError, r"m_decays is \(0.9, 0.99\), it must be three numbers"),
        (dict(m_decays=0.9), TypeError, "m_decays is 0.9, it must be three numbers"),
        (dict(factor_decays=(0.9, 0.99, 2)), ValueError, "factor_decay2 is 2"),
        (dict(max_grad_norm=0.0), ValueError, "max_grad_norm is 0, it must be above 0, or None"),
        (dict(precision="fp64"), ValueError, "precision is 'fp64', it must be one of 'fp32', 'tf32'"),
        (dict(pylo_cuda_compat=2), TypeError, "pylo_cuda_compat is 2, it must be True or False"),
    ],
)
def test_options_are_refused_at_the_beginning_and_later(options, error, sentence):
    with pytest.raises(error, match=sentence):
        made(**options)
    optimizer, params = made(), arrays()
    for name, value in options.items():
        setattr(optimizer, name, value)
    with pytest.raises(error, match=sentence):
        optimizer.step(params, arrays(1))
    assert same(params, arrays()) and optimizer.steps == 0


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: made(shapes=[(1, 1, 1, 1, 1, 2)]), ValueError, "6 dimensions: from 0 to 5 are possible"),
        (lambda: made(shapes=[(2, -1)]), ValueError, "an extent is not negative"),
        (lambda: made(shapes=3), TypeError, "shapes is an int, it must be a sequence of shapes"),
        (lambda: made(shapes=[3]), TypeError, r"shapes\[0\] is 3, it must be a sequence of integers"),
        (lambda: made(shapes=[np.zeros((2, 3))]), TypeError, r"shapes\[0\] is an array of the shape \(2, 3\), it must"),
        (lambda: setattr(made(), "weight_deacy", 0.1), AttributeError, "there is no option 'weight_deacy'; there are"),
        (lambda: setattr(made(quern.ELO), "step_mult", 1), AttributeError, "'step_mult'; there are clip_grad, exp"),
        (lambda: made(shapes=np.zeros(3)), TypeError, "shapes is a ndarray, it must be a sequence of shapes"),
        (lambda: made(quern.ELO, clip_grad=-1), ValueError, "clip_grad is -1, it must be above 0"),
        (lambda: stepped(made(lr_scale=[1, 2])), ValueError, "lr_scale has 2 numbers, and there are 3"),
        (lambda: stepped(made(lr_scale=[1, 2, -3])), ValueError, r"lr_scale\[2\] is -3"),
        (lambda: stepped(made(lr_scale=0.5)), TypeError, "lr_scale must be a sequence of numbers"),
        (lambda: made().step(arrays(), arrays(1), stream=0), ValueError, "stream is given, and the arrays are not"),
        (lambda: made(pylo_cuda_compat=True, shapes=[(2, 2, 2)]).step(*[[np.zeros((2, 2, 2), "f4")] for _ in "pg"]),
         ValueError, "3 dimensions: pylo_cuda_compat is for up to 2"),
    ],
)  # fmt: skip
def test_refused_by_a_sentence(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


# ---- state ----
@pytest.mark.parametrize("way", ["dictionary", "file"])
@pytest.mark.parametrize("kind", KINDS.values())
def test_a_round_trip_loses_nothing(kind, way, tmp_path):
    optimizer = made(kind)
    params = stepped(optimizer, 3)
    saved = optimizer.state_dict()
    assert set(saved) == {"step", "ties", "weights_checksum"} | {f"{n}.{k}" for n in _lopt.STATE for k in range(3)}
    if way == "file":
        np.savez(tmp_path / "state.npz", **saved)
        saved = dict(np.load(tmp_path / "state.npz"))
    other, others = made(kind), [p.copy() for p in params]
    other.load_state_dict(saved)
    for t in range(2):
        optimizer.step(params, arrays(10 + t))
        other.step(others, arrays(10 + t))
    assert other.steps == 5 and same(params, others)
    assert any((p != q).any() for p, q in zip(params, stepped(made(kind), 2, 10)))


def test_loaded_state_is_a_copy():
    optimizer, other = made(), made()
    stepped(optimizer)
    saved = optimizer.state_dict()
    kept = copied(saved)
    other.load_state_dict(saved)
    stepped(other)
    assert same_state(saved, kept)


def test_no_state_before_the_first_step():
    optimizer = made()
    empty = optimizer.state_dict()
    assert set(empty) == {"step", "ties", "weights_checksum"} and empty["step"] == 0
    stepped(optimizer, 1)
    optimizer.load_state_dict({"step": 0})
    assert optimizer.state_dict() == empty
    assert same(stepped(optimizer), stepped(made()))


@pytest.mark.parametrize(
    ("spoil", "error", "sentence"),
    [
        (lambda s: s.pop("step"), ValueError, "the state has no 'step'"),
        (lambda s: s.update(step=-1), ValueError, "step is -1"),
        (lambda s: s.update(step=1.5), TypeError, "step is 1.5, it must be an integer"),
        (lambda s: s.pop("exp_avg.1"), ValueError, r"the state has no 'exp_avg\.1'"),
        (lambda s: s.update({"exp_avg.3": s["exp_avg.0"]}), ValueError, r"'exp_avg\.3', which does not belong to 3"),
        (
            lambda s: s.update({"exp_avg.0": s["exp_avg.1"]}),
            ValueError,
            r"exp_avg\.0 has the shape \(3, 5\).*\(3, 3, 4\)",
        ),
        (
            lambda s: s.update({"exp_avg_sq.0": s["exp_avg_sq.0"].astype("f8")}),
            TypeError,
            "float64, it must be float32",
        ),
        (lambda s: s.update({"exp_avg_sq_c.0": None}), TypeError, r"exp_avg_sq_c\.0 is None, it must be an array"),
    ],
)
def test_state_that_does_not_fit_is_refused_and_nothing_is_loaded(spoil, error, sentence):
    optimizer, other = made(), made()
    stepped(optimizer)
    stepped(other, 3, 7)
    kept, saved = copied(optimizer.state_dict()), dict(other.state_dict())
    spoil(saved)
    with pytest.raises(error, match=sentence):
        optimizer.load_state_dict(saved)
    assert same_state(optimizer.state_dict(), kept)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_state_of_other_weights_is_refused_and_an_older_one_is_not(steps):
    weights = dict(WEIGHTS)
    weights["network.output.bias"] = np.nextafter(WEIGHTS["network.output.bias"], np.float32(2))
    optimizer, other = made(), quern.SmallFCLopt(SHAPES, weights)
    stepped(other, steps)
    saved, kept = other.state_dict(), copied(optimizer.state_dict())
    own, theirs = (f"{each['weights_checksum']:016x}" for each in (kept, saved))
    with pytest.raises(ValueError, match=f"SmallFCLopt: .* of the checksum {theirs}, .* optimizer's have {own}"):
        optimizer.load_state_dict(saved)
    assert same_state(optimizer.state_dict(), kept)
    del saved["weights_checksum"]
    optimizer.load_state_dict(saved)
    assert optimizer.steps == steps


# ---- arrays of other kinds ----
class Interface:
    """Nothing but an array interface."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class Lent:
    """Nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **words):
        return self.array.__dlpack__(**words)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("kind", [Interface, Lent])
def test_arrays_of_other_libraries(kind):
    params, wanted = arrays(), stepped(made())
    optimizer = made()
    for t in range(2):
        optimizer.step([kind(p) for p in params], [kind(g) for g in arrays(1 + t)])
    assert same(params, wanted)


def test_torch_tensors_are_stepped_and_counted():
    torch = pytest.importorskip("torch")
    wanted, start = stepped(made(), 1), arrays()
    params = [torch.from_numpy(p).requires_grad_() for p in start]
    optimizer = made()
    versions = [p._version for p in params]
    optimizer.step(params, [torch.from_numpy(g) for g in arrays(1)])
    assert all((p.detach().numpy() == q).all() for p, q in zip(params, wanted))
    assert all(p._version > version for p, version in zip(params, versions))
    assert all(isinstance(value, (int, str, torch.Tensor)) for value in optimizer.state_dict().values())
    bounded = made(quern.ELO, clip_grad=0.01)
    bounded.step(params, [torch.from_numpy(g) for g in arrays(1)])
    others = [p.copy() for p in wanted]
    made(quern.ELO, clip_grad=0.01).step(others, arrays(1))
    for p, q in zip(params, others):
        np.testing.assert_allclose(p.detach().numpy(), q, rtol=1e-6, atol=1e-9)


def test_empty_arrays_and_empty_lists_are_no_work():
    made(shapes=[]).step([], [])
    optimizer = made(shapes=[(0, 3), (4,)])
    params = arrays(0, [(0, 3), (4,)])
    alone = arrays(0, [(0, 3), (4,)])[1:]
    optimizer.step(params, arrays(1, [(0, 3), (4,)]))
    made(shapes=[(4,)]).step(alone, arrays(1, [(0, 3), (4,)])[1:])
    assert (params[1] == alone[0]).all()
    optimizer.load_state_dict(optimizer.state_dict())


def test_one_array_by_itself():
    p, g = arrays()[0], arrays(1)[0]
    made(shapes=[(3, 4)]).step(p, g)
    assert (p == stepped(made(), 1)[0]).all()
