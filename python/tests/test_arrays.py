# SPDX-License-Identifier: Apache-2.0
"""The function on plain arrays: what is computed, from which kinds of arrays, and with how many calls of the library.
Results are held against an oracle in NumPy (lion_oracle.py) bit for bit."""

import copy
import ctypes
import sys

import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

import lion_oracle as oracle  # noqa: E402
import quern  # noqa: E402
from quern import _call, _library  # noqa: E402

SHAPES = [(7, 5), (1,), (33,), (2, 3, 4), (), (4096,), (0, 3), (17, 31)]
HYPER = dict(lr=3e-3, betas=(0.95, 0.98), weight_decay=0.1)


@pytest.fixture
def rng():
    return np.random.default_rng(20231)


def expected(lists, **hyper):
    """The expected params and exp_avgs, in their storage types."""
    made = [oracle.step(p.astype(np.float32), g, m.astype(np.float32), **hyper) for p, g, m in zip(*lists)]
    with np.errstate(all="ignore"):
        return [[new[k].astype(old.dtype) for new, old in zip(made, lists[role])] for k, role in ((0, 0), (1, 2))]


def assert_same(got, want):
    assert len(got) == len(want)
    for k, (one, other) in enumerate(zip(got, want)):
        assert oracle.same_bits(one, other), f"array {k}: {one} and not {other}"


# ---- the oracle itself ----
def test_fma_is_rounded_once(rng):
    """Held against exact fractions: an oracle that rounded twice would accept a kernel that does."""
    from fractions import Fraction

    a, b = (rng.normal(0, 1, 4000).astype(np.float32) for _ in range(2))
    c = (rng.normal(0, 1, 4000) * 2.0 ** rng.integers(-30, 30, 4000)).astype(np.float32)
    got = oracle.fma(a, b, c)
    for x, y, z, result in zip(a, b, c, got):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        down, up = np.nextafter(result, np.float32(-np.inf)), np.nextafter(result, np.float32(np.inf))
        distance = abs(exact - Fraction(float(result)))
        assert distance <= min(abs(exact - Fraction(float(other))) for other in (down, up))
    # Twice rounded it would be 1: the sum lies above the middle of two float32 by less than float64 holds.
    one_more, one_less = np.float32(1 + 2**-11 + 2**-23), np.float32(1 - 2**-11 + 2**-23)
    assert Fraction(float(one_more)) * Fraction(float(one_less)) == 1 + Fraction(1, 2**46)
    tiny = one_less * np.float32(2**-24)
    assert np.float32(np.float64(one_more) * np.float64(tiny) + 1) == 1
    assert oracle.fma(one_more, tiny, np.float32(1)) == np.float32(1 + 2**-23)


# ---- what is computed ----
@pytest.mark.parametrize("dtypes", [("float32",) * 3, ("bfloat16",) * 3, ("float16", "float16", "float32")], ids=str)
def test_steps_of_a_list(rng, dtypes):
    lists = oracle.lists(rng, SHAPES, dtypes)
    for _ in range(3):
        want = expected(lists, **HYPER)
        assert quern.lion_(*lists, **HYPER) is None
        assert_same(lists[0], want[0])
        assert_same(lists[2], want[1])


def test_single_arrays_are_what_lists_are(rng):
    lists = oracle.lists(rng, [(9, 9)])
    want = expected(lists, **HYPER)
    quern.lion_(*(array for (array,) in lists), **HYPER)
    assert_same([lists[0][0], lists[2][0]], [want[0][0], want[1][0]])


def test_defaults_are_the_descriptions(rng):
    lists = oracle.lists(rng, [(50,)])
    want = expected(lists)
    quern.lion_(*lists)
    assert_same(lists[0], want[0])


def test_numbers_by_place_and_eps(rng):
    """The order that the signature promises: lr, betas, weight_decay, eps."""
    lists = oracle.lists(rng, [(50,)])
    want = expected(lists, **HYPER)
    quern.lion_(*lists, 3e-3, (0.95, 0.98), 0.1, 1e-8)
    assert_same(lists[0], want[0])


@pytest.mark.parametrize("sequence", [tuple, iter, lambda arrays: (array for array in arrays)])
def test_any_sequence(rng, sequence):
    lists = oracle.lists(rng, [(3,), (4,)])
    want = expected(lists)
    quern.lion_(*(sequence(arrays) for arrays in lists))
    assert_same(lists[0], want[0])


def test_nothing_to_do():
    quern.lion_([], [], [])
    empty = [np.zeros((0, 4), np.float32) for _ in range(3)]
    quern.lion_(*empty)


def test_scalars_of_numpy_as_numbers(rng):
    lists = oracle.lists(rng, [(50,)])
    want = expected(lists, lr=0.25)
    quern.lion_(*lists, lr=np.float32(0.25), betas=np.array([0.9, 0.99]), maximize=np.bool_(False), seed=np.uint8(3))
    assert_same(lists[0], want[0])


# ---- mixed lists ----
def mixed(rng):
    parts = [oracle.lists(rng, SHAPES[:3], dtypes) for dtypes in (("float32",) * 3, ("bfloat16",) * 3)]
    order = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)]
    return tuple([parts[part][role][k] for part, k in order] for role in range(3))


def test_storage_types_may_mix(rng):
    lists = mixed(rng)
    want = expected(lists, **HYPER)
    quern.lion_(*lists, **HYPER)
    assert_same(lists[0], want[0])
    assert_same(lists[2], want[1])


def test_kinds_that_the_buffer_protocol_knows_may_mix(rng):
    lists = [list(pair) for pair in zip(*(oracle.lists(rng, [(9,)], (kind, kind, "float32")) for kind in ("f4", "f2")))]
    lists = [[arrays[0] for arrays in part] for part in lists]
    want = expected(lists, **HYPER)
    quern.lion_(*lists, **HYPER)
    assert_same(lists[0], want[0])


def test_gradients_may_be_read_only(rng):
    lists = oracle.lists(rng, [(9,), (3, 3)])
    want = expected(lists)
    for gradient in lists[1]:
        gradient.flags.writeable = False
    quern.lion_(*lists)
    assert_same(lists[0], want[0])
    quern.lion_(lists[0][0], _Capsules(lists[1][0], flags=1), lists[2][0])
    quern.lion_(lists[0][0], Interface(lists[1][0]), lists[2][0])


def test_masters_where_there_are_some(rng):
    lists = mixed(rng)
    masters = [None if p.dtype == np.float32 else p.astype(np.float32) for p in lists[0]]
    originals = (
        [p.copy() if m is None else m.copy() for p, m in zip(lists[0], masters)],
        lists[1],
        [m.copy() for m in lists[2]],
    )
    want = expected(originals, **HYPER)
    quern.lion_(*lists, masters=masters, **HYPER)
    for param, master, new in zip(lists[0], masters, want[0]):
        assert oracle.same_bits(param if master is None else master, new)
        with np.errstate(all="ignore"):
            assert oracle.same_bits(param, new.astype(param.dtype))


def test_random_rounding_goes_by_the_place_in_the_whole_list(rng):
    """A tensor's noise must not depend on which other tensors happen to share its storage type."""
    words = dict(rounding="stochastic", momentum_rounding="stochastic", seed=7, step=3, **HYPER)
    lists = mixed(rng)
    alone = copy.deepcopy(lists)
    quern.lion_(*lists, **words)
    for k in range(len(alone[0])):
        quern.lion_(*(arrays[k] for arrays in alone), tensor_id=[k], **words)
    assert_same(lists[0], alone[0])
    assert_same(lists[2], alone[2])


def test_per_tensor_numbers_follow_their_tensors(rng):
    words = dict(rounding="stochastic", seed=7, **HYPER)
    lists, ids, firsts = mixed(rng), [5, 4, 3, 2, 1, 0], [0, 10, 20, 30, 40, 50]
    alone = copy.deepcopy(lists)
    quern.lion_(*lists, tensor_id=ids, first_element=iter(firsts), **words)
    for k in range(len(ids)):
        quern.lion_(*(a[k] for a in alone), tensor_id=[ids[k]], first_element=[firsts[k]], **words)
    assert_same(lists[0], alone[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cautious(rng, dtype):
    """Where no step agrees with its gradient, nothing but decay moves a weight; where all do, it is plain Lion."""
    p = np.full(100, 0.5, dtype)
    g, m = np.ones(100, dtype), np.zeros(100, dtype)
    quern.lion_(p, g, m, lr=0.125, cautious=True)
    assert (p == 0.375).all()
    m[:] = -100
    quern.lion_(p, g, m, lr=0.125, cautious=True)
    assert (p == 0.375).all()


# ---- threads, layouts ----
def test_bits_do_not_depend_on_threads(rng):
    lists = oracle.lists(rng, [(100_003,), (64, 1024)])
    want = expected(lists, **HYPER)
    before = quern.get_num_threads()
    try:
        for n in (1, 2, 3):
            now = copy.deepcopy(lists)
            quern.set_num_threads(n)
            quern.lion_(*now, **HYPER)
            assert_same(now[0], want[0])
    finally:
        quern.set_num_threads(before)


def test_dense_layouts_of_any_order(rng):
    lists = oracle.lists(rng, [(4, 5, 6)])
    want = expected(lists, **HYPER)
    for axes in ((2, 1, 0), (1, 2, 0)):
        turned = [np.ascontiguousarray(a[0].transpose(axes)).transpose(np.argsort(axes)) for a in lists]
        assert turned[0].shape == (4, 5, 6)
        assert not turned[0].flags.c_contiguous
        quern.lion_(*turned, **HYPER)
        assert_same([np.ascontiguousarray(turned[0])], want[0])


def test_a_slice_that_is_dense(rng):
    """Neighbours of the slice stay as they are."""
    whole = [array[0] for array in oracle.lists(rng, [(10, 8)])]
    before = whole[0].copy()
    parts = [a[3:6] for a in whole]
    want = expected([[part] for part in parts])
    quern.lion_(*parts)
    assert_same([whole[0][3:6]], want[0])
    assert oracle.same_bits(whole[0][:3], before[:3])
    assert oracle.same_bits(whole[0][6:], before[6:])


# ---- protocols ----
class DLPack:
    """Nothing but DLPack, as it is now: versions, copy, flags."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **words):
        assert words.get("stream") is None
        return self.array.__dlpack__(**words)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldDLPack(DLPack):
    """As it was before versions."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class Interface:
    """Nothing but the array interface."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return dict(self.array.__array_interface__)


class InterfaceInObject:
    """The interface as an attribute of the object."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


class Pointer:
    """The interface of PyTorch's tensors, without PyTorch."""

    device = "cpu"

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, f"somewhere.{array.dtype}"

    def data_ptr(self):
        return self.array.ctypes.data

    def stride(self):
        return tuple(step // self.array.itemsize for step in self.array.strides)


@pytest.mark.parametrize("kind", [DLPack, OldDLPack, Interface, InterfaceInObject, Pointer])
@pytest.mark.parametrize("shape", [(6, 7), (), (0,)], ids=str)
def test_protocol(rng, kind, shape):
    lists = oracle.lists(rng, [shape])
    want = expected(lists, **HYPER)
    quern.lion_(*(kind(arrays[0]) for arrays in lists), **HYPER)
    assert_same(lists[0], want[0])
    assert_same(lists[2], want[1])


@pytest.mark.parametrize("kind", [DLPack, OldDLPack, Interface, Pointer])
def test_strides_of_a_protocol(rng, kind):
    """Row-major taken for column-major would pass with equal layouts: the gradient's differs, and that is refused."""
    p, g, m = (array[0] for array in oracle.lists(rng, [(4, 5)]))
    before = p.copy()
    with pytest.raises(ValueError, match=r"grad\[0\] \(4x5\) is laid out in another order than param\[0\]"):
        quern.lion_(kind(p), kind(np.asfortranarray(g)), kind(m))
    assert oracle.same_bits(p, before)


def test_protocols_may_mix(rng):
    lists = oracle.lists(rng, [(3, 3)] * 3)
    want = expected(lists)
    kinds = (DLPack, Interface, Pointer)
    quern.lion_(*([kind(a) for kind, a in zip(kinds[k:] + kinds[:k], arrays)] for k, arrays in enumerate(lists)))
    assert_same(lists[0], want[0])


def test_bfloat16_through_the_interface(rng):
    """There bfloat16 is two bytes of nothing; the object's dtype says what they are."""
    lists = oracle.lists(rng, [(40,)], ("bfloat16",) * 3)
    want = expected(lists)

    class Named(Interface):
        dtype = np.dtype("bfloat16")

    quern.lion_(*(Named(arrays[0]) for arrays in lists))
    assert_same(lists[0], want[0])


class _Capsules:
    """DLPack capsules made here, by hand, from the protocol's text: the byte offset, flags and versions that NumPy
    never makes."""

    def __init__(self, array, flags=0, version=(1, 0), offset=0, code=2, bits=32, lanes=1, strides=True):
        self.array, self.calls = array, []
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
        tensor = b"".join(
            bytes(part)
            for part in (
                ctypes.c_void_p(array.ctypes.data - offset),
                ctypes.c_int32(1),
                ctypes.c_int32(0),
                ctypes.c_int32(array.ndim),
                ctypes.c_uint8(code),
                ctypes.c_uint8(bits),
                ctypes.c_uint16(lanes),
                ctypes.c_void_p(ctypes.addressof(self.shape)),
                ctypes.c_void_p(ctypes.addressof(self.strides) if strides else None),
                ctypes.c_uint64(offset),
            )
        )
        head = bytes(ctypes.c_uint32(version[0])) + bytes(ctypes.c_uint32(version[1])) + bytes(16)
        self.memory = ctypes.create_string_buffer(head + bytes(ctypes.c_uint64(flags)) + tensor)

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **words):
        self.calls.append(words)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.memory), b"dltensor_versioned", None)


@pytest.mark.parametrize("words", [{}, {"offset": 4096}, {"strides": False}, {"version": (1, 9)}], ids=str)
def test_capsules(rng, words):
    lists = oracle.lists(rng, [(5, 6)])
    want = expected(lists)
    made = [_Capsules(arrays[0], **words) for arrays in lists]
    quern.lion_(*made)
    assert_same(lists[0], want[0])
    # Written arrays must not be copies; what is only read may be one.
    assert [capsules.calls for capsules in made] == [
        [{"max_version": (1, 0), "copy": False}],
        [{"max_version": (1, 0)}],
        [{"max_version": (1, 0), "copy": False}],
    ]


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        ({"flags": 1}, ValueError, "params (_Capsules) is read-only"),
        ({"flags": 2}, TypeError, "lends a copy"),
        ({"version": (2, 0)}, TypeError, "its DLPack version is 2.0"),
        ({"code": 0}, TypeError, "params is int32; params may be float32, bfloat16 or float16"),
        ({"lanes": 4}, TypeError, "params is float32x4"),
    ],
    ids=str,
)
def test_capsules_refused(rng, words, error, sentence):
    lists = oracle.lists(rng, [(5, 6)])
    before = copy.deepcopy(lists)
    with pytest.raises(error) as caught:
        quern.lion_(_Capsules(lists[0][0], **words), lists[1][0], lists[2][0])
    assert sentence in str(caught.value)
    assert_same(lists[0] + lists[2], before[0] + before[2])


def test_capsules_are_given_back(rng):
    """A capsule that is kept would keep the memory for ever."""
    p, g, m = (array[0] for array in oracle.lists(rng, [(100,)]))
    count = sys.getrefcount(p)
    for _ in range(3):
        quern.lion_(DLPack(p), OldDLPack(g), DLPack(m))
    assert sys.getrefcount(p) == count


# ---- what a call costs ----
class Counting:
    """The library, with every call of it counted by name."""

    def __init__(self, lib):
        self._lib, self.calls = lib, []

    def __getattr__(self, name):
        function = getattr(self._lib, name)

        def counted(*arguments):
            self.calls.append(name)
            return function(*arguments)

        return counted


@pytest.mark.parametrize("n", [1, 512, 20_000])
def test_a_list_is_one_call_of_the_library(rng, monkeypatch, n):
    """Of the fast call none that Python makes; of the longer way, which reads a locked gradient, one."""
    lists = oracle.lists(rng, [(3, 3)] * n)
    quern.lion_(*lists)
    real = _library.lib
    counting = Counting(real)
    for name, module in list(sys.modules.items()):
        if name.startswith("quern.") and getattr(module, "lib", None) is real:
            monkeypatch.setattr(module, "lib", counting)
    want = expected([part[-1:] for part in lists], **HYPER)
    quern.lion_(*lists, **HYPER)
    assert counting.calls == []
    assert_same(lists[0][-1:], want[0])
    lists[1][0].flags.writeable = False
    want = expected([part[-1:] for part in lists], **HYPER)
    quern.lion_(*lists, **HYPER)
    assert counting.calls == ["qn_op_step"]
    assert_same(lists[0][-1:], want[0])
    counting.calls.clear()
    quern.lion_(*lists, cautious=True)
    assert counting.calls == ["qn_op_workspace_bytes", "qn_op_step"]


def test_a_mixed_list_is_checked_before_it_runs(rng, monkeypatch):
    counting = Counting(_library.lib)
    quern.lion_(*mixed(rng))
    monkeypatch.setattr(_call, "lib", counting)
    quern.lion_(*mixed(rng))
    assert counting.calls == ["qn_op_prepare", "qn_op_prepare", "qn_op_step", "qn_op_step"]
