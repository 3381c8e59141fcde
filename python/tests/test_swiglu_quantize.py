# SPDX-License-Identifier: Apache-2.0
"""quern.swiglu with out_dtype="float8_e4m3fn": ml_dtypes' own rounding of what quern.swiglu gives, scales of all three
kinds, PyTorch's type, and what is refused. `quern check swiglu_quantize` has tiers, layouts and golden vectors."""

import pytest

numpy = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")
import quern  # noqa: E402

FLOAT8 = "float8_e4m3fn"


def draw(dtype, shape=(5, 300), seed=0):
    source = numpy.random.default_rng(seed)
    return [(source.standard_normal(shape) * 3).astype(dtype) for _ in range(2)]


def rounded(values, scale):
    """Saturated, then to nearest even by ml_dtypes; NaN stays."""
    scaled = values.astype(numpy.float32) * (numpy.float32(1) / numpy.asarray(scale, numpy.float32))
    return numpy.clip(scaled, -448, 448).astype(ml_dtypes.float8_e4m3fn)


def same(a, b):
    return (a.view(numpy.uint8) == b.view(numpy.uint8)).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("activation", ["swiglu", "clamped", "geglu", "geglu_erf", "reglu", "glu"])
def test_the_bits_are_ml_dtypes(dtype, activation):
    a, b = draw(numpy.dtype(getattr(ml_dtypes, dtype, dtype)))
    value = quern.swiglu(a, b, 1.25, 0.5, activation=activation)
    one, rows = numpy.array([0.02], numpy.float32), numpy.linspace(0.01, 0.5, 5).astype(numpy.float32)
    for scale, spread in ((one, one), (rows, rows[:, None]), (rows[:, None], rows[:, None])):
        got = quern.swiglu(a, b, 1.25, 0.5, activation=activation, out_dtype=FLOAT8, scale=scale)
        assert got.dtype == ml_dtypes.float8_e4m3fn and same(got, rounded(value, spread))
    got, scale = quern.swiglu(a, b, 1.25, 0.5, activation=activation, out_dtype=ml_dtypes.float8_e4m3fn)
    want = numpy.abs(value.astype(numpy.float32)).max(-1, keepdims=True) / numpy.float32(448)
    assert scale.shape == (5, 1) and (scale == want).all() and same(got, rounded(value, scale))


def test_halves_and_more_dimensions():
    both = draw(numpy.float32, (2, 3, 64))[0]
    for layout, a, b in (("halves", both[..., :32], both[..., 32:]), ("interleaved", both[..., ::2], both[..., 1::2])):
        want, scale = quern.swiglu(a.copy(), b.copy(), out_dtype=FLOAT8)
        got, other = quern.swiglu(both, layout=layout, out_dtype=FLOAT8)
        assert same(got, want) and other.shape == (2, 3, 1) and (other == scale).all()
        out = numpy.zeros((2, 3, 40), ml_dtypes.float8_e4m3fn)[..., :32]
        assert quern.swiglu(a, b, out_dtype=FLOAT8, scale=scale, out=out) is out and same(out, want)


def test_odd_rows():
    """A row of zeros has scale 1; NaN and infinities do not count for amax, stay NaN, and become 448."""
    a = numpy.ones((3, 4), numpy.float32)
    b = numpy.array([[0, -0.0, 0, 0], [1, numpy.nan, 2, -numpy.inf], [0, 0, 0, 0]], numpy.float32)
    b.view(numpy.uint32)[2, 0] = 1  # by its bits: code that others compile with -ffast-math makes 0 of a subnormal
    got, scale = quern.swiglu(a, b, activation="reglu", out_dtype=FLOAT8)
    assert scale[:, 0].tolist() == [1, numpy.float32(2) / numpy.float32(448), 2.0**-126]
    values = got.astype(float)
    assert (values[0] == 0).all() and numpy.signbit(values[0]).tolist() == [False, True, False, False]
    assert numpy.isnan(values[1]).tolist() == [False, True, False, False]
    assert values[1][2] == 448 and values[1][3] == -448


def test_quern_torch_hands_on_and_has_no_gradient():
    torch = pytest.importorskip("torch")
    import quern.torch

    a, b = (torch.from_numpy(x) for x in draw(numpy.float32))
    want, scale = quern.swiglu(a, b, out_dtype=FLOAT8)
    got, other = quern.torch.swiglu(a, b, out_dtype=torch.float8_e4m3fn)
    again = quern.torch.swiglu(a, b, out_dtype=torch.float8_e4m3fn, scale=scale)
    assert torch.equal(scale, other) and torch.equal(got.view(torch.uint8), want.view(torch.uint8))
    assert torch.equal(again.view(torch.uint8), want.view(torch.uint8))
    with pytest.raises(TypeError, match="gradient"):
        quern.torch.swiglu(a.requires_grad_(), b, out_dtype=torch.float8_e4m3fn)
    with pytest.raises(TypeError, match="out_dtype is not"):
        quern.torch.swiglu(a.detach(), b, scale=scale)


def test_what_dlpack_says_is_understood():
    """Types of one code and size; no other size of that code is taken for them."""
    torch = pytest.importorskip("torch")
    from quern import _dlpack

    for bits, name in ((8, "float8_e4m3fn"), (4, "type 10 of 4")):
        capsule = torch.zeros(3).__dlpack__()
        tensor = _dlpack._Tensor.from_address(_dlpack._pointer_of(capsule, b"dltensor"))
        tensor.dtype.code, tensor.dtype.bits = 10, bits
        assert _dlpack.Lent(capsule).dtype == name


def test_pytorch_has_the_type():
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(x) for x in draw(numpy.float32))
    got, scale = quern.swiglu(a, b, out_dtype=torch.float8_e4m3fn)
    want, other = quern.swiglu(a.numpy(), b.numpy(), out_dtype=FLOAT8)
    assert got.dtype == torch.float8_e4m3fn and (scale.numpy() == other).all()
    assert (got.view(torch.uint8).numpy() == want.view(numpy.uint8)).all()


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda a, s: quern.swiglu(a, a, scale=s), TypeError, "out_dtype is not"),
        (lambda a, s: quern.swiglu(a, a, out_dtype="float16"), TypeError, "out_dtype is float16"),
        (
            lambda a, s: quern.swiglu(a, a, out_dtype=FLOAT8, scale=s[:3]),
            ValueError,
            r"scale has the shape 3, it must be \[m\] or \[1\], and m is 5",
        ),
        (lambda a, s: quern.swiglu(a, a, out_dtype=FLOAT8, scale=s.astype(numpy.float16)), TypeError, "scale f16"),
        (lambda a, s: quern.swiglu(a, a, out_dtype=FLOAT8, scale=s, out=a), TypeError, "c f32"),
        (lambda a, s: quern.swiglu(a, a[:2], out_dtype=FLOAT8), ValueError, "shape"),
        (lambda a, s: quern.swiglu(a, a, out_dtype=FLOAT8, activation="elu"), ValueError, "'elu'"),
        (lambda a, s: quern.swiglu(a, a, "one", out_dtype=FLOAT8), TypeError, "gate_multiplier is 'one'"),
        (lambda a, s: quern.swiglu(a, a, out_dtype=FLOAT8, scale=a[:, 0]), ValueError, "not contiguous"),
        (lambda a, s: quern.swiglu(a, a, out_dtype=FLOAT8, out=a.T.copy().T), ValueError, "side by side"),
        (
            lambda a, s: quern.swiglu(a, a, out_dtype=FLOAT8, out=numpy.broadcast_to(a[:1], a.shape)),
            ValueError,
            "laid out",
        ),
        (lambda a, s: quern.swiglu(*[a.astype(ml_dtypes.float8_e4m3fn)] * 2), TypeError, "f8e4m3|float8"),
        (
            lambda a, s: quern.lion_(*[[a.astype(ml_dtypes.float8_e4m3fn)] for _ in range(3)]),
            TypeError,
            "f8e4m3|float8",
        ),
    ],
)
def test_refusals(call, error, words):
    a = draw(numpy.float32)[0]
    before = a.copy()
    with pytest.raises(error, match=words):
        call(a, numpy.ones(5, numpy.float32))
    assert (a == before).all()
