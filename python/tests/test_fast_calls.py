# SPDX-License-Identifier: Apache-2.0
"""Fast calls (src/python/fast_call.c) against the longer way: whatever the arguments are, both give the same bits or
the same exception with the same sentence, and neither ends the interpreter. Arguments are drawn at random from all that
is out of the ordinary; each call is made twice from the same seed, once with fast calls taken away."""

import itertools
import random
import re

import ml_dtypes
import numpy as np
import pytest
import quern
from quern import _call, _fast, _gemm, _quantize, _swiglu

try:
    import torch
    from torch._subclasses import FakeTensor, FakeTensorMode
except ImportError:
    torch = None
else:
    import quern.torch

ROUNDS = 700


# ---- arguments ----
def odd_arrays(rng, shape):
    """NumPy's, by name."""
    base = np.asarray(np.random.default_rng(rng.randrange(1 << 30)).standard_normal((*shape[:-1], 2 * shape[-1])), "f4")
    locked = base[..., : shape[-1]].copy()
    locked.flags.writeable = False
    whole = base[..., : shape[-1]].copy()
    return {
        "whole": whole,
        "again": whole,
        "weight": np.ones((5, shape[-1]), "f4"),
        "rows": base[..., : shape[-1]],
        "every other": base[..., ::2],
        "backwards": whole[::-1],
        "turned": np.ascontiguousarray(whole.T).T,
        "flat": whole.reshape(-1),
        "of one": np.zeros((1, *shape), "f4"),
        "half": whole.astype("f2"),
        "double": whole.astype("f8"),
        "whole numbers": whole.astype("i4"),
        "swapped": whole.astype(">f4"),
        "objects": whole.astype(object),
        "locked": locked,
        "empty": np.zeros((0, shape[-1]), "f4"),
        "number": np.float32(3),
        "of no dimension": np.array(1.0, "f4"),
        "askew": np.zeros(whole.nbytes + 4, "u1")[1:-3].view("f4").reshape(whole.shape),
        "packed": np.zeros(whole.shape, np.dtype([("x", "f4"), ("y", "u1")]))["x"],
        "masked": np.ma.masked_array(whole, mask=False),
        "matrix": whole.view(np.matrix) if whole.ndim == 2 else whole,
        "wide": np.broadcast_to(np.float32(1), whole.shape),
        "none": None,
        "text": "abc",
        "list": [whole],
        "of lists": whole.tolist(),
    }


def odd_tensors(rng, shape):
    """PyTorch's, by name."""

    class Sub(torch.Tensor):
        pass

    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    base = torch.randn((*shape[:-1], 2 * shape[-1]), generator=generator)
    whole = base[..., : shape[-1]].clone()
    gone = whole.clone()
    gone.untyped_storage().resize_(0)
    with FakeTensorMode():
        fake = torch.empty(shape)
    return {
        "whole": whole,
        "again": whole,
        "weight": torch.ones(5, shape[-1]),
        "rows": base[..., : shape[-1]],
        "every other": base[..., ::2],
        "turned": whole.mT.contiguous().mT,
        "flat": whole.flatten(),
        "of one": torch.zeros(1, *shape),
        "half": whole.half(),
        "bfloat16": whole.bfloat16(),
        "double": whole.double(),
        "whole numbers": whole.int(),
        "complex": torch.complex(whole, whole),
        "negated": torch._neg_view(whole),
        "zeros": torch._efficientzerotensor(shape),
        "gone": gone,
        "fake": fake,
        "meta": whole.to("meta"),
        "sparse": whole.to_sparse(),
        "parameter": torch.nn.Parameter(whole.clone()),
        "leaf": whole.clone().requires_grad_(),
        "view of a leaf": whole.clone().requires_grad_()[:],
        "sub": whole.clone().as_subclass(Sub),
        "lazy": torch._lazy_clone(whole),
        "wide": torch.ones(()).expand(shape),
        "empty": torch.zeros(0, shape[-1]),
        "of no dimension": torch.zeros(()),
        "numpy": whole.numpy().copy(),
        "none": None,
        "text": "abc",
        "list": [whole],
        "type": torch.float32,
    }


NUMBERS = [1.0, 0.5, 2, True, None, float("nan"), float("inf"), "1", 10**400, np.float32(0.5), -1.0, [1.0]]


def draw(rng, pool, usual, odds):
    """A usual argument mostly, else an odd one."""
    return pool[usual] if rng.random() > odds else pool[rng.choice(sorted(pool))]


def swiglu(rng, pool):
    odds = rng.choice([0.0, 0.2, 0.5])
    words = {}
    if rng.random() < 0.5:
        words["out"] = draw(rng, pool, rng.choice(["again", "rows", "half", "none"]), odds)
    for name in ("gate_multiplier", "alpha", "limit"):
        if rng.random() < 0.2:
            words[name] = rng.choice(NUMBERS)
    if rng.random() < 0.3:
        words["activation"] = rng.choice(["geglu", "clamped", "relu", "swiglu|", "", 3, None])
    return quern.swiglu, (draw(rng, pool, "whole", odds), draw(rng, pool, "every other", odds)), words


def quantize(rng, pool):
    call, arrays, words = swiglu(rng, pool)
    words["out_dtype"] = rng.choice(["float8_e4m3fn"] * 7 + ["float16"])
    if "out" in words:
        words["out"] = rng.choice([None, words["out"], float8(pool["whole"])])
    if rng.random() < 0.5:
        column = pool["whole"][..., 0]
        rows = column.clone() if hasattr(column, "clone") else column.copy()
        words["scale"] = rng.choice([rows, rows, column, rows[..., None], draw(rng, pool, "flat", 0.8)])
    return call, arrays, words


def float8(like):
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.zeros(like.shape, dtype=torch.float8_e4m3fn)
    return np.zeros(like.shape, ml_dtypes.float8_e4m3fn)


def in_place(rng, pool):
    odds = rng.choice([0.1, 0.5])
    made = [draw(rng, pool, usual, odds) for usual in ("rows", "whole", "every other")]
    return rng.choice([quern.swiglu_, quern.lion_]), made, {} if rng.random() < 0.8 else {"stream": rng.choice([0, 1])}


def lists(rng, pool):
    """Lists, tuples and single ones, mostly of as many arrays; one may stand in several."""
    odds, n = rng.choice([0.0, 0.05, 0.3]), rng.choice([1, 1, 2, 3, 5])
    usual = rng.choice([["whole"], ["rows"], ["whole", "flat", "half"]])
    made = []
    for _ in range(4 if rng.random() < 0.1 else 3):
        length = n if rng.random() < 0.9 else rng.choice([0, 1, n + 1])
        arrays = [draw(rng, pool, usual[at % len(usual)], odds) for at in range(length)]
        if rng.random() < 0.9:
            arrays = [copy(one) for one in arrays]
        made.append(rng.choice([list, list, tuple])(arrays) if rng.random() < 0.95 else draw(rng, pool, "whole", 0.1))
    words = {"lr": rng.choice(NUMBERS)} if rng.random() < 0.2 else {}
    if rng.random() < 0.1:
        words["stream"] = rng.choice([0, 1])
    if len(made) == 4:
        words["masters"] = made.pop()
    return rng.choice([quern.swiglu_, quern.lion_] if len(words) == 0 else [quern.lion_]), made, words


def copy(one):
    """Of an array that has a copy like it, whose rows are apart where the array's are."""
    plain = torch is not None and type(one) is torch.Tensor and not any((one.requires_grad, one.is_meta, one.is_sparse))
    if type(one) is np.ndarray and one.dtype != object:
        packed, zeros = one.flags.c_contiguous, lambda shape: np.zeros(shape, one.dtype)
    elif plain and not isinstance(one, FakeTensor) and one.untyped_storage().nbytes():
        packed, zeros = one.is_contiguous(), one.new_zeros
    else:
        return one
    made = zeros((*one.shape[:-1], 2 * one.shape[-1]))[..., : one.shape[-1]] if not packed else zeros(one.shape)
    made[...] = one
    return made


def one_odd(rng, pool):
    """Lists of which one array is not like the others."""
    made = [[copy(pool["rows"]) for _ in range(3)] for _ in range(3)]
    made[rng.randrange(3)][rng.randrange(3)] = pool[rng.choice(sorted(pool))]
    return rng.choice([quern.swiglu_, quern.lion_]), made, {}


def backward(rng, pool):
    odds = rng.choice([0.1, 0.5])
    made = [draw(rng, pool, usual, odds) for usual in ("rows", "whole", "every other")]
    return quern.swiglu_backward, made, {"in_place": True} if rng.random() < 0.2 else {}


def gemm(rng, pool):
    odds = rng.choice([0.1, 0.5])
    words = {"norm": rng.choice(["none", "layer", "group", "rms", "no"]), "groups": rng.choice([1, 2, 3, 1.0, -1])}
    words["clamp"] = rng.choice([True, False, 1, None])
    if rng.random() < 0.3:
        words["bias"] = draw(rng, pool, "flat", 0.8)
    if rng.random() < 0.3:
        words["out"] = draw(rng, pool, "rows", 0.8)
    return quern.gemm_norm, (draw(rng, pool, "whole", odds), draw(rng, pool, "weight", odds)), words


def recorded(rng, pool):
    odds, words = rng.choice([0.0, 0.1, 0.5]), {}
    del pool["meta"]  # beside one with contents it is no mistake to PyTorch, which returns what nobody has written
    made = [draw(rng, pool, usual, odds) for usual in (rng.choice(["leaf", "view of a leaf"]), "parameter")]
    if rng.random() < 0.3:
        words["activation"] = rng.choice(["geglu", "clamped", "relu", 3, None])
    if rng.random() < 0.3:
        made, words["layout"] = made[:1], rng.choice(["halves", "interleaved", "no", 3])
    if rng.random() < 0.2:
        words["gate_multiplier"] = rng.choice(NUMBERS)
    return differentiated("swiglu"), made, words


def recorded_gemm(rng, pool):
    pool["row"], pool["leaf row"] = torch.ones(5), torch.ones(5, requires_grad=True)
    pool["leaf weight"] = pool["weight"].clone().requires_grad_()
    odds, words = rng.choice([0.0, 0.1, 0.5]), {"norm": rng.choice(["none", "layer", "group", "rms", "no"])}
    del pool["meta"]
    words["activation"] = rng.choice(["relu", "gelu", "silu", "mish", "none", 3])
    words["clamp"] = rng.choice([True, False, None])
    for name in ("bias", "bias2"):
        if rng.random() < 0.3:
            words[name] = draw(rng, pool, rng.choice(["row", "leaf row"]), 0.3)
    made = [draw(rng, pool, usual, odds) for usual in (rng.choice(["leaf", "whole"]), rng.choice(["leaf", "weight"]))]
    return differentiated("gemm_norm"), made, words


def differentiated(name):
    """The result and the gradients of a function of quern.torch; of the second derivative, that it is refused."""

    def call(*given, **words):
        made, leaves = getattr(quern.torch, name)(*given, **words), []
        if made.requires_grad:
            leaves = [one for one in (*given, *words.values()) if getattr(one, "requires_grad", False)]
            found = torch.autograd.grad((made * made).sum(), leaves, create_graph=True)
            with pytest.raises(RuntimeError, match=f"{name}.* has no second derivative"):
                torch.autograd.grad(found[0].sum(), leaves)
            leaves = [one.detach() for one in (*found, *torch.autograd.grad(made.sum(), leaves, retain_graph=True))]
        return (made, *leaves)

    return call


# ---- outcomes ----
def told(value):
    """Returns a result as values that can be compared."""
    if isinstance(value, (list, tuple)):
        return [told(one) for one in value]
    if torch is not None and isinstance(value, torch.Tensor):
        return type(value), tuple(value.shape), value.stride(), value.dtype, value.requires_grad, bits(value)
    if hasattr(value, "shape"):
        return type(value), value.shape, value.strides, value.dtype, repr(value.tolist())
    return value


def bits(tensor):
    if tensor.device.type == "meta" or isinstance(tensor, FakeTensor) or tensor.layout is not torch.strided:
        return None
    return repr(tensor.detach().flatten().tolist()) if tensor.data_ptr() else None


def outcome(make, arrays, seed):
    """Of the call of that seed: the result or the exception, and what its arguments are then."""
    rng = random.Random(seed)
    pool = arrays(rng, rng.choice([(4, 6), (6, 6), (2, 3, 4), (1, 1)]))
    function, given, words = make(rng, pool)
    try:
        found = told(function(*given, **words))
    except Exception as error:
        found = type(error), re.sub(r"0x[0-9a-f]+", "0x", str(error))
    after = [told(one) for one in (*given, *words.values())]
    each = [one for argument in given for one in (argument if isinstance(argument, (list, tuple)) else [argument])]
    versions = [getattr(one, "_version", 0) for one in each] if torch else []
    return function.__name__, found, after, versions


def longer_way(monkeypatch):
    for name in ("swiglu", "lion"):
        getattr(quern, f"{name}_")  # made at its first use, which shall not be this one
    monkeypatch.setattr(_swiglu, "fast_forward", _fast._none)
    monkeypatch.setattr(_swiglu, "fast_backward", _fast._none)
    monkeypatch.setattr(_gemm, "fast", _fast._none)
    monkeypatch.setattr(_quantize, "fast", _fast._none)
    monkeypatch.setattr(_fast, "create", lambda *_: _fast._none)
    monkeypatch.setattr(_fast, "torch_state", _fast._none)
    if torch is not None:
        monkeypatch.setattr(quern.torch._swiglu, "_fast_call", _fast._none)
        monkeypatch.setattr(quern.torch._gemm, "_fast_call", _fast._none)
    for name in ("swiglu", "lion"):
        monkeypatch.setattr(quern, f"{name}_", _call.function(name))


ARRAYS = {"numpy": odd_arrays, "torch": odd_tensors}
MAKERS = [swiglu, quantize, in_place, lists, one_odd, backward, gemm]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind, make", [*itertools.product(ARRAYS, MAKERS), ("torch", recorded), ("torch", recorded_gemm)]
)
def test_as_the_longer_way(make, kind, monkeypatch):
    pytest.importorskip(kind)
    arrays = ARRAYS[kind]
    fast = [outcome(make, arrays, seed) for seed in range(ROUNDS)]
    longer_way(monkeypatch)
    for seed, found in enumerate(fast):
        wanted = outcome(make, arrays, seed)
        assert repr(found) == repr(wanted), f"seed {seed}"


# ---- what stands between a call and its tensors ----
def modes():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    return Functions(), Dispatches(), torch.device("cpu"), torch.autograd.forward_ad.dual_level()


@pytest.mark.parametrize("which", range(4))
def test_modes_are_seen(which):
    pytest.importorskip("torch")
    a = torch.ones(8)
    call = (None, a, a, 1.0, 1.0, "swiglu", 1.702, 7.0, None)
    quern.swiglu(a, a)
    assert _swiglu.fast_forward(*call) is not NotImplemented
    with modes()[which]:
        assert _swiglu.fast_forward(*call) is NotImplemented
        wanted = torch.nn.functional.silu(a) * a
        assert torch.allclose(quern.torch.swiglu(a, a), wanted)
    assert _swiglu.fast_forward(*call) is not NotImplemented


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transform", ["vmap", "grad", "jvp", "functionalize", "trace", "make_fx"])
def test_transforms_are_seen(transform):
    """Under each a fast call leaves the call alone; what PyTorch then makes of it is its own business."""
    pytest.importorskip("torch")
    from torch.fx.experimental.proxy_tensor import make_fx

    a, found = torch.ones(4, 8), []

    def call(x):
        found.append(_swiglu.fast_forward(None, x, a[0], 1.0, 1.0, "swiglu", 1.702, 7.0, None))
        found.append(_swiglu.fast_forward(None, a, a, 1.0, 1.0, "swiglu", 1.702, 7.0, None))
        return (x * 2).sum()

    quern.swiglu(a, a)
    with torch.no_grad():
        {
            "vmap": lambda: torch.vmap(call)(a),
            "grad": lambda: torch.func.grad(call)(a[0]),
            "jvp": lambda: torch.func.jvp(call, (a[0],), (a[0],)),
            "functionalize": lambda: torch.func.functionalize(call)(a[0]),
            "trace": lambda: torch.jit.trace(call, (a[0],), check_trace=False),
            "make_fx": lambda: make_fx(call)(a[0]),
        }[transform]()
    assert found and all(one is NotImplemented for one in found)


# ---- kernels from a body ----
_BODY = "uint i = thread_position_in_grid.x; out[i] = T(inp[i]) * T(by);"


def kernel_call(rng, pool):
    """The words of a call, of which many are refused."""
    shape, number = rng.choice([[4], (4,), (4.0,), [-1]]), rng.choice([2.0, 3, True, -1, 1 << 40, 1 << 70, "x", 1j])
    kinds = [np.float32, np.dtype("f4"), "float32", bool, *([torch.float32] if torch is not None else [])]
    words = {"output_shapes": [shape], "output_dtypes": [rng.choice(kinds)]}
    words["template"] = rng.choice([[("T", kinds[-1])], (("T", kinds[0]),), {"T": "float32"}, [("T", 3)]])
    words["grid"] = rng.choice([(4, 1, 1), [4, 1, 1], (4, 1), (4.0, 1, 1), (np.int64(4), 1, 1)])
    if rng.random() < 0.2:
        words["in_place"] = rng.choice([{"out": "inp"}, {"out": "by"}, {"no": "inp"}])
    if rng.random() < 0.2:
        words["out"] = [draw(rng, pool, rng.choice(["row", "none"]), 0.5)]
    if rng.random() < 0.2:
        words["init_value"] = rng.choice([0, 1.0, True, None, "x", [2.0]])
    words["inputs"] = [draw(rng, pool, "row", 0.3), rng.choice([number, draw(rng, pool, "one", 0.3)])]
    return words


def kernel_outcome(kernel, arrays, seed):
    rng = random.Random(seed)
    pool = arrays(rng, (4, 6))
    pool["row"], pool["one"] = pool["whole"][:, 0], pool["whole"][0, 0]  # rows at a distance; of no dimensions
    keep = ("row", "one", "whole", "none", "text", "locked", "leaf", "meta", "gone", "sub", "negated", "double", "list")
    words = kernel_call(rng, {name: pool[name] for name in keep if name in pool})
    found = []
    for _ in range(2):  # the second time it is a call like an earlier one
        try:
            found.append(told(tuple(kernel(**words))))
        except Exception as error:
            found.append((type(error), re.sub(r"0x[0-9a-f]+", "0x", str(error))))
    return found, told(words["inputs"][0]), getattr(words["inputs"][0], "_version", 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ARRAYS)
def test_kernels_as_the_longer_way(kind):
    pytest.importorskip(kind)
    arrays = ARRAYS[kind]
    fast, slow = (quern.metal_kernel("times", ["inp", "by"], ["out"], _BODY) for _ in range(2))
    calls = []
    learned, slow._fast = fast._fast, _fast._none
    fast._fast = lambda *words: calls.append(learned(*words)) or calls[-1]
    for seed in range(500):
        assert repr(kernel_outcome(fast, arrays, seed)) == repr(kernel_outcome(slow, arrays, seed)), f"seed {seed}"
    assert sum(made is not NotImplemented for made in calls) > 10
