# SPDX-License-Identifier: Apache-2.0
"""Refusals of the function on plain arrays: each with the exception a Python user expects, a sentence that says where
in the user's own lists the fault is, and not a bit of any array changed."""

import pytest

np = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")

import lion_oracle as oracle  # noqa: E402
import quern  # noqa: E402

BF16 = np.dtype("bfloat16")


def arrays(n=4, shape=(6, 5), dtype=np.float32):
    """params, grads, exp_avgs."""
    rng = np.random.default_rng(5)
    return [[oracle.draw(rng, shape, 1, odd=0).astype(dtype) for _ in range(n)] for _ in range(3)]


def frozen(array):
    made = array.copy()
    made.flags.writeable = False
    return made


def holders(lists):
    """Every array that is somewhere in the lists."""
    return [
        array for part in lists if isinstance(part, (list, tuple)) for array in part if isinstance(array, np.ndarray)
    ]


def refused(error, sentence, lists, **words):
    """The call raises that error, whose sentence has these words, and changes nothing."""
    before = [array.copy() for array in holders(lists)]
    with pytest.raises(error) as caught:
        quern.lion_(*lists, **words)
    assert type(caught.value) is error, caught.value
    assert sentence in str(caught.value)
    for array, then in zip(holders(lists), before):
        assert array.tobytes() == then.tobytes()


def put(role, k, make):
    """The lists, with make(array) in that place."""
    lists = arrays()
    lists[role][k] = make(lists[role][k])
    return lists


def cast(dtype):
    return lambda array: array.astype(dtype)


PLACES = {
    "int64": (1, 3, cast(np.int64), TypeError, "lion: grads[3] is int64; grads may be"),
    "bool": (1, 2, cast(bool), TypeError, "lion: grads[2] is bool"),
    "complex": (0, 2, cast(np.complex64), TypeError, "lion: params[2] is complex64"),
    "objects": (0, 1, cast(object), TypeError, "lion: params[1] is object"),
    "structs": (0, 1, lambda a: np.zeros((6, 5), "f4,f4"), TypeError, "lion: params[1] is void64"),
    "byte order": (0, 1, cast(">f4"), TypeError, "lion: params[1] is float32 in the other byte order"),
    "bytes of bfloat16": (2, 1, lambda a: a.astype(BF16).view(np.uint16), TypeError, "lion: exp_avgs[1] is uint16"),
    "float64": (0, 2, cast(np.float64), TypeError, "there is no kernel for param f64, grad f32"),
    "None": (1, 1, lambda a: None, TypeError, "lion: grads[1] is None, it must be an array"),
    "a list of lists": (0, 0, lambda a: [a], TypeError, "lion: params[0] is a list, it must be an array"),
    "a float": (0, 0, lambda a: 1.0, TypeError, "lion: params[0] is a float, it must be an array"),
    "a string": (0, 0, lambda a: "weights", TypeError, "lion: params[0] is a str, it must be an array"),
    "a number of NumPy": (2, 0, lambda a: a[0, 0], TypeError, "lion: exp_avgs[0] is a number of type float32"),
    "a masked array": (0, 0, lambda a: np.ma.masked_array(a, a > 0), TypeError, "lion: params[0] is a masked array"),
    "read-only": (0, 3, frozen, ValueError, "lion: params[3] (ndarray) is read-only"),
    "read-only momentum": (2, 3, frozen, ValueError, "lion: exp_avgs[3] (ndarray) is read-only"),
    "shape": (1, 2, lambda a: a[:, :4].copy(), ValueError, "lion: grad[2] has the shape 6x4 and param[2] has 6x5"),
    "rank": (1, 2, lambda a: a.reshape(30), ValueError, "lion: grad[2] has the shape 30 and param[2] has 6x5"),
    "layout": (1, 2, np.asfortranarray, ValueError, "grad[2] (6x5) is laid out in another order than param[2]"),
    "backwards": (0, 2, lambda a: a[::-1], ValueError, "lion: param[2] (6x5) is not dense"),
    "with gaps": (0, 2, lambda a: np.repeat(a, 2, 1)[:, ::2], ValueError, "lion: param[2] (6x5) is not dense"),
    "one row for all": (1, 2, lambda a: np.broadcast_to(a[0], (6, 5)), ValueError, "grad[2] (6x5) is laid out in"),
    "a field of structs": (1, 2, lambda a: np.zeros((6, 5), "f4,i2")["f0"], ValueError, "no multiples of its element"),
    "an odd address": (0, 2, lambda a: odd(a), ValueError, "lion: param[2] cannot be at address 0x"),
}


def odd(array):
    return np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize("name", PLACES)
def test_array_in_a_list(name):
    role, k, make, error, sentence = PLACES[name]
    lists = put(role, k, make)
    refused(error, sentence, lists)


def test_pair_that_is_not_in_the_table():
    lists = arrays()
    lists[0][2], lists[2][2] = lists[0][2].astype(np.float16), lists[2][2].astype(np.float16)
    refused(TypeError, "there is no kernel for param f16, grad f32, momentum f16; as", lists)


def test_all_of_float64():
    refused(TypeError, "there is no kernel for param f64, grad f64, momentum f64; as", arrays(dtype=np.float64))


def test_alone_an_array_has_no_number():
    p, g, m = (part[0] for part in arrays())
    refused(TypeError, "lion: grads is int64;", [p, g.astype(np.int64), m])
    refused(ValueError, "lion: params (ndarray) is read-only", [frozen(p), g, m])


@pytest.mark.parametrize(
    "value", ["weights", b"weights", 3, 1.5, None, {"w": 1}, object()], ids=lambda v: type(v).__name__
)
def test_no_sequence(value):
    _, grads, exp_avgs = arrays()
    kind = "None" if value is None else type(value).__name__
    refused(TypeError, f"{kind}, it must be an array or a sequence of arrays", [value, grads, exp_avgs])


def test_lengths():
    params, grads, exp_avgs = arrays()
    refused(ValueError, "lion: params has 4 arrays and grads 3", [params, grads[:3], exp_avgs])
    refused(ValueError, "lion: params has 4 arrays and exp_avgs 1", [params, grads, exp_avgs[0]])
    refused(ValueError, "lion: params has 4 arrays and masters 0", [params, grads, exp_avgs], masters=[])


def test_missing_role():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'exp_avgs'"):
        quern.lion_([], [])


# ---- lists of several kinds: the library sees them in parts, the user in one ----
def mixed():
    """Places 1 and 2 are of bfloat16, the others of float32."""
    lists = arrays()
    for part in lists:
        part[1:3] = [array.astype(BF16) for array in part[1:3]]
    return lists


def test_nothing_is_written_if_only_the_last_kind_is_wrong():
    lists = mixed()
    lists[1][2] = lists[1][2][:3].copy()
    refused(ValueError, "lion: grad[2] has the shape 3x5 and param[2] has 6x5", lists)
    lists = mixed()
    lists[2][3] = lists[2][3].astype(np.float64)
    refused(TypeError, "there is no kernel for param f32, grad f32, momentum f64", lists)
    lists = mixed()
    refused(ValueError, "lion: first_element[2] is", lists, first_element=[0, 0, 1 << 62, 0])


def test_overlap_within_a_kind():
    lists = mixed()
    lists[0][3] = lists[0][0]
    refused(ValueError, "lion: param[0] (0x", lists)
    lists = mixed()
    lists[2][2] = lists[0][2]
    refused(ValueError, " and momentum[2] (0x", lists)


def test_overlap_across_kinds():
    """No one call of the library sees both."""
    lists = mixed()
    lists[0][1] = lists[0][0].view(BF16).reshape(6, 10)[:, :5]  # not dense: refused as such
    refused(ValueError, "param[1] (6x5) is not dense", lists)
    lists = mixed()
    lists[0][1] = lists[0][0].view(BF16).reshape(-1)[10:40].reshape(6, 5)
    refused(ValueError, "and param[1] (0x", lists)
    lists = mixed()
    lists[1][1] = lists[0][0].view(BF16).reshape(-1)[30:].reshape(6, 5)
    refused(ValueError, "share memory, and at least one of them is written", lists)
    lists = mixed()  # the read range begins first
    memory = np.zeros(200, np.uint8)
    lists[1][1] = memory[:60].view(BF16).reshape(6, 5)
    lists[0][0] = memory[40:160].view(np.float32).reshape(6, 5)
    refused(ValueError, "lion: grad[1] (0x", lists)


def test_shared_gradients_are_fine():
    lists = mixed()
    shared = np.zeros(60, BF16)
    lists[1][0], lists[1][1] = shared.view(np.float32).reshape(6, 5), shared[:30].reshape(6, 5)
    before = lists[2][1].copy()
    quern.lion_(*lists)
    assert not oracle.same_bits(lists[2][1], before)


def test_agreement_has_no_parts():
    sentence = "agreement is given, and the list has 2 kinds of storage types: call once for each kind"
    refused(ValueError, sentence, mixed(), cautious=True, agreement=np.ones(8, np.int64))


def test_masters_only_where_there_is_a_row():
    lists = mixed()
    masters = [array.astype(np.float32) for array in lists[0]]
    refused(TypeError, "there is no kernel for param f32, grad f32, momentum f32, master f32", lists, masters=masters)


# ---- numbers ----
NUMBERS = [
    (dict(lr=-1.0), ValueError, "lion: lr is -1, it must be a finite number of at least 0"),
    (dict(lr=float("nan")), ValueError, "lion: lr is nan"),
    (dict(lr="1e-4"), TypeError, "lion: lr is '1e-4', it must be a number"),
    (dict(lr=None), TypeError, "lion: lr is None, it must be a number"),
    (dict(lr=1j), TypeError, "lion: lr is 1j, it must be a number"),
    (dict(lr=np.ones(2)), TypeError, "it must be a number"),
    (dict(betas=(0.9, 1.0)), ValueError, "lion: beta2 is 1, it must lie in [0, 1)"),
    (dict(betas=(0.9,)), ValueError, "lion: betas has 1 numbers, it must have 2"),
    (dict(betas=0.9), TypeError, "lion: betas is 0.9, it must be 2 numbers"),
    (dict(betas=("0.9", 0.99)), TypeError, "lion: beta1 is '0.9', it must be a number"),
    (dict(betas=None), TypeError, "lion: betas is None, it must be 2 numbers"),
    (dict(weight_decay=-0.5), ValueError, "lion: weight_decay is -0.5"),
    (dict(eps="x"), TypeError, "lion: eps is 'x', it must be a number"),
    (dict(decay="cubed"), ValueError, "lion: decay is 'cubed', it must be one of 'lr', 'relative', 'squared'"),
    (dict(decay=1), ValueError, "lion: decay is 1, it must be one of"),
    (dict(decay="relative", reference_lr=0), ValueError, "lion: reference_lr is 0, it must be above 0"),
    (dict(maximize="no"), TypeError, "lion: maximize is 'no', it must be True or False"),
    (dict(maximize=2), TypeError, "lion: maximize is 2, it must be True or False"),
    (dict(cautious=None), TypeError, "lion: cautious is None, it must be True or False"),
    (dict(cautious=np.ones(2)), TypeError, "it must be True or False"),
    (dict(seed=-1), ValueError, "lion: seed is -1, it must be in [0, 2^64)"),
    (dict(seed=1 << 64), ValueError, "lion: seed is 18446744073709551616"),
    (dict(seed=1.5), TypeError, "lion: seed is 1.5, it must be an integer"),
    (dict(tensor_id=[1]), ValueError, "lion: tensor_id has 1 numbers, and there are 4 arrays"),
    (dict(tensor_id=3), TypeError, "lion: tensor_id must be a sequence of integers, one an array"),
    (dict(tensor_id=[1, 2, 3, 0.5]), TypeError, "lion: tensor_id must be a sequence of integers"),
    (dict(tensor_id=[1, 2, 3, -4]), ValueError, "lion: tensor_id has -4 in it"),
    (dict(first_element=[0, 0, 0, 1 << 61]), ValueError, "lion: first_element[3] is"),
    (dict(found_inf=1.0), TypeError, "lion: found_inf is a float, it must be an array"),
    (dict(found_inf=np.zeros(1)), TypeError, "lion: found_inf is float64, it must be float32"),
    (dict(found_inf=np.zeros(2, np.float32)), ValueError, "lion: found_inf has 8 bytes, it must have 4"),
    (dict(hyper=np.zeros(5)), ValueError, "lion: hyper has 40 bytes, it must have 48"),
    (dict(hyper=np.zeros((6, 2))[:, 0]), ValueError, "lion: hyper is not contiguous"),
    (dict(agreement=np.zeros(8)), TypeError, "lion: agreement is float64, it must be int64"),
    (dict(agreement=np.zeros(4, np.int64)), ValueError, "lion: agreement has 32 bytes, it must have 64"),
    (dict(agreement=np.zeros(8, np.int64)), ValueError, "lion: agreement is given, which cautious reads"),
    (dict(stream=0), ValueError, "lion: stream is given, and not all arrays are on a GPU"),
    (dict(stream="fast"), TypeError, "stream is a str"),
    (dict(stream=-3), ValueError, "stream is -3"),
]


@pytest.mark.parametrize(("words", "error", "sentence"), NUMBERS, ids=lambda value: str(value)[:40])
def test_number(words, error, sentence):
    refused(error, sentence, arrays(), **words)


@pytest.mark.parametrize("words", [dict(lr=-1.0), dict(seed=-1), dict(betas=(2, 3))], ids=str)
def test_numbers_matter_even_with_nothing_to_do(words):
    with pytest.raises(ValueError, match="lion: "):
        quern.lion_([], [], [], **words)


def test_unknown_keyword():
    with pytest.raises(TypeError, match="momentum"):
        quern.lion_([], [], [], momentum=[])


# ---- other libraries' arrays ----
class Fake:
    """An array of some library, as its attributes say."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def interface(array, **changes):
    return Fake(array=array, __array_interface__={**array.__array_interface__, **changes})


class Raises:
    """A producer that does not lend."""

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **words):
        raise BufferError("not today")


class Elsewhere(Raises):
    def __dlpack_device__(self):
        return (8, 0)  # Metal


class NoCapsule(Raises):
    def __dlpack__(self, **words):
        return 5


class Wrapper:
    """As a tensor without memory of its own."""

    device, shape, dtype = "cpu", (6, 5), "float32"

    def stride(self):
        return (5, 1)

    def data_ptr(self):
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")


class OnMeta(Wrapper):
    device = "meta"


OTHERS = [
    (lambda a: interface(a, data=(a.ctypes.data, True)), ValueError, "lion: params[2] (Fake) is read-only"),
    (lambda a: interface(a, mask=a), TypeError, "lion: params[2] has a mask"),
    (lambda a: interface(a, typestr="<i4"), TypeError, "lion: params[2] is int32"),
    (lambda a: interface(a, typestr=">f4"), TypeError, "lion: params[2] is >f4 in the other byte order"),
    (lambda a: interface(a, typestr="|V2"), TypeError, "lion: params[2] is |V2"),
    (lambda a: interface(a, data=None), TypeError, "lion: params[2] says in its array interface no address"),
    (lambda a: interface(a, strides=(22, 4)), ValueError, "lion: params[2] has strides of (22, 4) bytes"),
    (lambda a: Raises(), TypeError, "lion: params[2] (Raises) cannot be lent through DLPack: not today"),
    (lambda a: Elsewhere(), ValueError, "lion: params[2] is on the device 8:0 of DLPack, where quern has no kernels"),
    (
        lambda a: NoCapsule(),
        TypeError,
        "params[2] (NoCapsule) cannot be lent through DLPack: its __dlpack__ gives 5, which is no fresh DLPack capsule",
    ),
    (lambda a: Wrapper(), TypeError, "lion: params[2] (Wrapper) has no memory of its own: Cannot access data pointer"),
    (lambda a: OnMeta(), ValueError, "lion: params[2] is on meta, where quern has no kernels"),
]


@pytest.mark.parametrize(("make", "error", "sentence"), OTHERS, ids=lambda value: str(value)[:40])
def test_array_of_another_library(make, error, sentence):
    refused(error, sentence, put(0, 2, make))
