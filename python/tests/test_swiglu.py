# SPDX-License-Identifier: Apache-2.0
"""quern.swiglu and swiglu_backward on plain arrays: the formula in double, every layout, refusals."""

import math

import pytest

numpy = pytest.importorskip("numpy")
import quern  # noqa: E402

EPS = {"float32": 2.0**-23, "float16": 2.0**-10}


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def activations(x, activation, alpha=1.702, limit=7.0):
    """Value and slope by x, in double."""
    if activation == "swiglu":
        return x * sigmoid(x), sigmoid(x) * (1 + x * (1 - sigmoid(x)))
    if activation == "clamped":
        held = numpy.minimum(x, limit)
        sig = sigmoid(alpha * held)
        return held * sig, numpy.where(x > limit, 0, sig * (1 + alpha * held * (1 - sig)))
    if activation == "geglu":
        k = math.sqrt(2 / math.pi)
        t = numpy.tanh(k * (x + 0.044715 * x**3))
        return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x)
    if activation == "geglu_erf":
        phi = numpy.vectorize(lambda v: math.erfc(-v / math.sqrt(2)) / 2)(x)
        return x * phi, phi + x * numpy.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if activation == "reglu":
        return numpy.maximum(x, 0), (x > 0).astype(float)
    return sigmoid(x), sigmoid(x) * (1 - sigmoid(x))


def reference(dc, a, b, gate, down, activation, limit=7.0):
    dc, a, b = (numpy.asarray(x, numpy.float64) for x in (dc, a, b))
    s, slope = activations(a * gate, activation)
    up, held = (numpy.clip(b, -limit, limit) + 1, numpy.abs(b) <= limit) if activation == "clamped" else (b, 1)
    results = (s * up * down, dc * down * slope * up * gate, dc * down * s * held)
    # The magnitudes of what is added up, times how much a rounding of x moves an exponential of it.
    terms = (s * up * down, dc * down * up * gate, dc * down * s)
    moved = 1 + numpy.abs(a * gate)
    return [(want, numpy.abs(term) * moved + 1e-3) for want, term in zip(results, terms)]


def near(got, want, dtype):
    want, scale = want
    return float(numpy.max(numpy.abs(numpy.asarray(got, numpy.float64) - want) / scale)) / EPS[dtype]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("activation", ["swiglu", "clamped", "geglu", "geglu_erf", "reglu", "glu"])
@pytest.mark.parametrize("gate, down", [(1.0, 1.0), (1.3, 0.7)])
def test_the_formula(dtype, activation, gate, down):
    draw = numpy.random.default_rng(5)
    a, b, dc = ((draw.standard_normal((7, 129)) * scale).astype(dtype) for scale in (3, 4, 1))
    want_c, want_da, want_db = reference(dc, a, b, gate, down, activation)
    c = quern.swiglu(a, b, gate, down, activation=activation)
    da, db = quern.swiglu_backward(dc, a, b, gate, down, activation=activation)
    assert c.dtype == a.dtype and c.shape == a.shape
    assert near(c, want_c, dtype) < 4
    assert near(da, want_da, dtype) < 4 and near(db, want_db, dtype) < 4


def test_geglu_erf_is_torchs_gelu():
    """PyTorch's in double; in float its own error is three times as large. Four roundings of values up to 1 + |a|."""
    torch = pytest.importorskip("torch")
    draw = torch.Generator().manual_seed(3)
    a, b = torch.randn(4096, generator=draw) * 3, torch.randn(4096, generator=draw)
    double = a.double().requires_grad_()
    want = torch.nn.functional.gelu(double, approximate="none") * b
    (slope,) = torch.autograd.grad(want.sum(), double)
    got = quern.swiglu(a, b, activation="geglu_erf")
    da, _ = quern.swiglu_backward(torch.ones(4096), a, b, activation="geglu_erf")
    bound = 2.0**-22 * (1 + a.abs()) * b.abs() / 2
    assert ((got - want.detach()).abs() <= bound).all()
    assert ((da - slope).abs() <= bound).all()


@pytest.mark.parametrize("dtype, units", [("float32", 2.0**-21), ("float16", 2.0**-10)])
def test_geglu_erf_keeps_the_digits_of_large_negative_gates(dtype, units):
    x = numpy.linspace(-5 if dtype == "float16" else -12.5, -1, 500).astype(dtype)
    want = numpy.array([v * math.erfc(-v / math.sqrt(2)) / 2 for v in x.astype(float)])
    got = quern.swiglu(x, numpy.ones_like(x), activation="geglu_erf").astype(float)
    assert (numpy.abs(got - want) <= units * numpy.abs(want) + (2.0**-25 if dtype == "float16" else 0)).all()


def test_halves_interleaved_and_strided_arrays_give_the_same_bits():
    both = numpy.random.default_rng(1).standard_normal((5, 64)).astype(numpy.float32)
    for a, b in ((both[:, :32], both[:, 32:]), (both[:, ::2], both[:, 1::2]), (both.T[:32], both.T[32:])):
        want = quern.swiglu(a.copy(), b.copy())
        assert (quern.swiglu(a, b) == want).all()


def test_views_are_not_copied():
    """Columns of one array, taken as they are: what lies between what is written stays."""
    from quern import _swiglu

    both = numpy.random.default_rng(6).standard_normal((2, 5, 64)).astype(numpy.float32)
    for view in (both[..., :32], both[..., 32:], both[..., ::2], both[..., 1::2], both[:, 1:4, 3:40]):
        same = view is _swiglu._in_rows("x", view)
        assert same == (view.shape[1] == 5)  # rows of two distances are copied
    assert _swiglu._in_rows("x", both.T).flags.c_contiguous
    out = numpy.full((2, 5, 64), 7, numpy.float32)
    assert quern.swiglu(both[..., ::2], both[..., 1::2], out=out[..., 1::2]).base is out
    assert (out[..., ::2] == 7).all()
    assert (out[..., 1::2] == quern.swiglu(both[..., ::2].copy(), both[..., 1::2].copy())).all()


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_one_array_that_holds_both(layout):
    draw = numpy.random.default_rng(7)
    x, dc = (
        draw.standard_normal((3, 5, 66)).astype(numpy.float32),
        draw.standard_normal((3, 5, 33)).astype(numpy.float32),
    )
    a, b = (x[..., :33], x[..., 33:]) if layout == "halves" else (x[..., ::2], x[..., 1::2])
    assert (quern.swiglu(x, layout=layout) == quern.swiglu(a.copy(), b.copy())).all()
    da, db = quern.swiglu_backward(dc, a.copy(), b.copy(), 1.3)
    dx = quern.swiglu_backward(dc, x, None, 1.3, layout=layout)
    order = (dx[..., :33], dx[..., 33:]) if layout == "halves" else (dx[..., ::2], dx[..., 1::2])
    assert (order[0] == da).all() and (order[1] == db).all()
    assert quern.swiglu_backward(dc, x, None, 1.3, layout=layout, in_place=True) is x and (x == dx).all()
    for call, error, words in (
        (lambda: quern.swiglu(x), ValueError, "b is missing"),
        (lambda: quern.swiglu(x, x, layout=layout), TypeError, "b is given"),
        (lambda: quern.swiglu(x[..., 1:], layout=layout), ValueError, "no two of one width"),
        (lambda: quern.swiglu(x, out=x[..., ::2], layout="interleaved"), ValueError, "share memory"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_gradients_may_be_written_over_the_inputs():
    draw = numpy.random.default_rng(2)
    dc, a, b = (draw.standard_normal(100).astype(numpy.float32) for _ in range(3))
    da, db = quern.swiglu_backward(dc, a, b, 1.3)
    over_a, over_b = quern.swiglu_backward(dc, a, b, 1.3, in_place=True)
    assert over_a is a and over_b is b
    assert (a == da).all() and (b == db).all()


def test_out_is_written():
    a = numpy.ones(9, numpy.float32)
    out = numpy.zeros(9, numpy.float32)
    assert quern.swiglu(a, a, out=out) is out
    assert abs(out[0] - 1 / (1 + math.exp(-1))) < 1e-7


def test_nan_stays():
    a = numpy.array([math.nan, 1, 1], numpy.float32)
    b = numpy.array([1, math.nan, 1], numpy.float32)
    for activation in ("swiglu", "clamped", "geglu", "geglu_erf", "reglu", "glu"):
        assert numpy.isnan(quern.swiglu(a, b, activation=activation)).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda a: quern.swiglu(a, a[:3]), ValueError, "shape"),
        (lambda a: quern.swiglu(a, a.astype(numpy.float16)), TypeError, "there is no kernel"),
        (lambda a: quern.swiglu(a, a, float("nan")), ValueError, "gate_multiplier"),
        (lambda a: quern.swiglu(a, a, activation="relu"), ValueError, "activation"),
        (lambda a: quern.swiglu(a, a, activation="clamped", limit=0), ValueError, "limit is 0"),
        (lambda a: quern.swiglu(a, a, out=a), ValueError, "share memory"),
        (lambda a: quern.swiglu([1.0], a), TypeError, "must be an array"),
        (lambda a: quern.swiglu_backward(a, a.copy(), a, in_place=True), ValueError, "share memory"),
    ],
)
def test_refusals_say_why_and_change_nothing(call, error, words):
    a = numpy.arange(8, dtype=numpy.float32)
    before = a.copy()
    with pytest.raises(error, match=words):
        call(a)
    assert (a == before).all()


def test_a_tensor_that_wants_a_gradient_is_refused():
    torch = pytest.importorskip("torch")
    a = torch.ones(4, requires_grad=True)
    with pytest.raises(TypeError, match=r"quern\.torch\.swiglu"):
        quern.swiglu(a, a)
    assert torch.equal(quern.swiglu(a.detach(), torch.ones(4)), quern.swiglu(torch.ones(4), torch.ones(4)))
