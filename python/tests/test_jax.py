# SPDX-License-Identifier: Apache-2.0
"""quern.jax on real XLA: its results are the bits of the library's own call on the CPU, whatever they come through;
what is donated is used in place and nothing else is written; only what must compile compiles; refusals are exceptions
with the library's sentence. With the mark cuda the same on a GPU. The handler's own refusals are in tests/xla_ffi.c."""

import functools
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("numpy")
jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import quern.jax  # noqa: E402
from jax import lax  # noqa: E402
from jax_lists import DEVICES, LION, NUMPY, SHAPES, direct, found, lists, pointers, python, run, same  # noqa: E402
from quern.jax import _ffi, _functions, _hyper  # noqa: E402

ROWS = ["/".join(row) for row in LION.types]


ON_CPU = pytest.mark.parametrize("device", ["cpu"], indirect=True)
ON_CUDA = pytest.mark.parametrize("device", ["cuda"], indirect=True)


@pytest.fixture(autouse=True, params=DEVICES)
def device(request):
    """jax's default device while a test runs."""
    kind = found(request.param)
    with jax.default_device(kind):
        yield kind


# ---- bits ----
@pytest.mark.parametrize("row", ROWS)
def test_bits_of_every_row_of_types(row):
    arrays = lists(row)
    assert same(run(arrays, 1e-2, weight_decay=0.1), direct(arrays, lr=1e-2, weight_decay=0.1))


OPTIONS = {
    "betas": (dict(betas=(0.5, 0.25)), dict(beta1=0.5, beta2=0.25)),
    "maximize": (dict(maximize=True), dict(maximize=True)),
    "cautious": (dict(cautious=True), dict(cautious=True)),
    "relative": (dict(decay="relative", reference_lr=0.5), dict(decay="relative", reference_lr=0.5)),
    "squared": (dict(decay="squared", reference_lr=0.5), dict(decay="squared", reference_lr=0.5)),
    "eps": (dict(eps=1e-8), dict(eps=1e-8)),
    "scale": (dict(grad_scale=jnp.float32(8)), dict(grad_scale=np.full(1, 8, np.float32))),
    "found": (dict(found_inf=np.float32(1)), dict(found_inf=np.ones(1, np.float32))),
    "not found": (dict(found_inf=False), dict(found_inf=np.zeros(1, np.float32))),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_bits_with_options(name):
    keywords, values = OPTIONS[name]
    arrays = lists()
    got = run(arrays, 1e-2, weight_decay=0.1, **keywords)
    assert same(got, direct(arrays, lr=1e-2, weight_decay=0.1, **values))
    assert same(got, arrays) == (name == "found")


def test_cautious_by_given_counts():
    """Counts of half of the elements, as for one shard of two; by 32-bit words where jax has no wider integers."""
    arrays = lists()
    counts = np.array([[array.size // 3, 2 * array.size] for array in arrays[0]], np.int64)
    want = direct(arrays, lr=1e-2, cautious=True, agreement=counts)
    assert same(run(arrays, 1e-2, cautious=True, agreement=counts.view(np.uint32)), want)
    assert not same(run(arrays, 1e-2, cautious=True), want)
    mixed = [
        role and [*role, role[0].astype(NUMPY["bf16"] if k < 2 else role[0].dtype)] for k, role in enumerate(arrays)
    ]
    counts = np.concatenate([counts, [[1, 1000]]])
    got = run(mixed, 1e-2, cautious=True, agreement=counts.view(np.uint32))
    last = [role and role[-1:] for role in mixed]
    assert same([role and role[:-1] for role in got], want)
    assert same([role and role[-1:] for role in got], direct(last, lr=1e-2, cautious=True, agreement=counts[-1:]))


def test_a_tree_of_mixed_types_is_one_call_a_group():
    """f32 and bf16 leaves, some with a master copy; random numbers are of a leaf's place in the tree."""
    groups = {"f32/f32/f32/none": [0, 3], "bf16/bf16/f32/f32": [1], "bf16/bf16/bf16/none": [2, 4]}
    leaves, want = [None] * 5, [None] * 5
    settings = dict(rounding="stochastic", momentum_rounding="stochastic", seed=2**64 - 3, step=7)
    for row, places in groups.items():
        arrays = lists(row, SHAPES[: len(places)], seed=places[0])
        new = direct(arrays, lr=1e-2, tensor_id=places, **settings)
        for k, place in enumerate(places):
            leaves[place] = [role and role[k] for role in arrays]
            want[place] = [role and role[k] for role in new]
    trees = [{"x": [leaf[role] for leaf in leaves]} for role in range(4)]
    got = quern.jax.lion(*trees[:3], 1e-2, masters=trees[3], **settings)
    assert same(got, [{"x": [leaf[role] for leaf in want]} for role in (0, 2, 3)])


def test_nothing_in_a_tree_stays_nothing():
    (params, grads, exp_avgs, _) = lists(shapes=[(4,)])
    got = quern.jax.lion([None, params[0]], [None, grads[0]], [None, exp_avgs[0]], 1e-2)
    assert got[0][0] is None and got[1][0] is None
    assert same([got[0][1], got[1][1]], [direct(lists(shapes=[(4,)]), lr=1e-2)[role][0] for role in (0, 2)])
    assert quern.jax.lion({}, {}, {}) == ({}, {})


# ---- stochastic rounding ----
def test_stochastic_rounding_is_a_function_of_seed_step_and_place():
    arrays = lists("bf16/bf16/f32/none", [(5000,), (300,)])
    settings = dict(weight_decay=0.1, rounding="stochastic", seed=11)
    steps = {}
    for step in (0, 1, jnp.uint32(1), jnp.int32(1), 2**32 + 1):
        got = run(arrays, 1e-3, step=step, **settings)
        steps.setdefault(int(step) % 2**32, got)
        assert same(got, steps[int(step) % 2**32])
        assert same(got, direct(arrays, lr=1e-3, step=int(step), **settings))
    assert not same(steps[0], steps[1])
    shard = run(arrays, 1e-3, first_element=[64, 2**40], tensor_id=[3, 2**31], **settings)
    assert same(shard, direct(arrays, lr=1e-3, first_element=[64, 2**40], tensor_id=[3, 2**31], **settings))
    assert not same(shard, steps[0])


# ---- numbers that may change ----
def test_words_of_a_double_from_every_kind_of_single():
    rng = np.random.default_rng(1)
    odd = np.array([0, -0.0, 1, -1e-4, 1e-45, 1.1754942e-38, 1.1754944e-38, 3.4e38, np.inf, -np.inf], np.float32)
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint32)
    singles = np.concatenate([odd, bits.view(np.float32), (bits & 0x807FFFFF).view(np.float32)])
    with np.errstate(invalid="ignore"):
        want = singles.astype(np.float64)
    got = np.ascontiguousarray(jax.jit(jax.vmap(_hyper._words))(singles)).view(np.float64)[:, 0]
    number = ~np.isnan(want)
    assert (got.view(np.uint64) == want.view(np.uint64))[number].all()
    assert np.isnan(got[~number]).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_an_array_is_taken_as_the_number_that_it_is(dtype):
    arrays = lists()
    lr = jnp.asarray(0.3, dtype)
    assert same(run(arrays, lr), direct(arrays, lr=float(lr)))


def test_doubles_and_wide_integers_where_jax_has_them():
    arrays = lists("bf16/bf16/f32/none")
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with enable(True):
        lr, step = jnp.asarray(1e-3 + 1e-12), jnp.asarray(2**32 - 5)
        assert lr.dtype == jnp.float64 and step.dtype == jnp.int64
        got = run(arrays, lr, step=step, rounding="stochastic")
    assert same(got, direct(arrays, lr=1e-3 + 1e-12, step=2**32 - 5, rounding="stochastic"))


def test_other_numbers_compile_nothing():
    (params, grads, exp_avgs, _) = lists(shapes=[(7,), (9,)])
    traces = []

    @jax.jit
    def step(params, exp_avgs, lr, wd, number):
        traces.append(1)
        return quern.jax.lion(params, grads, exp_avgs, lr, weight_decay=wd, step=number)

    for k in range(4):
        want = direct([params, grads, exp_avgs, None], lr=0.125 * k, weight_decay=0.5 * k)
        got = step(params, exp_avgs, 0.125 * k, 0.5 * k, k)
        assert same(got, [want[0], want[2]])
    assert len(traces) == 1 and step._cache_size() == 1
    quern.jax.lion(params, grads, exp_avgs, 0.1)
    before = _functions._keeping._cache_size()
    for k in range(4):
        quern.jax.lion(params, grads, exp_avgs, 0.1 * k, betas=(0.1 * k, 0.2 * k), step=k)
    assert _functions._keeping._cache_size() == before
    quern.jax.lion(params, grads, exp_avgs, 0.1, maximize=True)
    assert _functions._keeping._cache_size() == before + 1


# ---- memory ----
def test_what_is_donated_is_used_in_place():
    arrays = lists(shapes=[(64,), (100,)])
    (params, grads, exp_avgs, _) = [role and [jnp.array(array, copy=True) for array in role] for role in arrays]
    own = jax.jit(quern.jax.lion, donate_argnums=(0, 2))
    text = own.lower(params, grads, exp_avgs, 1e-2).compile().as_text()
    assert "output_to_operand_aliasing" in text and not re.search(r"= f32\[\d+\]\S* copy\(", text)
    for step in (own, functools.partial(quern.jax.lion, donate=True)):
        before = pointers((params, exp_avgs))
        new = step(params, grads, exp_avgs, 1e-2)
        assert pointers(new) == before
        assert all(array.is_deleted() for array in [*params, *exp_avgs])
        assert not any(array.is_deleted() for array in grads)
        params, exp_avgs = new


def test_what_is_not_donated_is_not_written():
    arrays = lists()
    on_device = [role and [jnp.asarray(array) for array in role] for role in lists()]  # which may lie in NumPy's memory
    for step in (quern.jax.lion, jax.jit(quern.jax.lion)):
        new = step(*on_device[:3], 1e-2)
        assert same(on_device[:3], arrays[:3])
        assert not set(pointers(new[0][3])) & set(pointers(on_device[:3]))


def test_a_call_without_aliases_copies_first():
    """As a program of somebody else may call the handler: results have memory of their own."""
    arrays = lists(shapes=[(1000,)])
    on_device = [jnp.array(role[0], copy=True) for role in arrays[:3]]
    _ffi.register()
    shape = jax.ShapeDtypeStruct((1000,), jnp.float32)
    call = _ffi.Call("lion", 1, (0, 1, 2), (("lr", 0.25),), ())
    new = jax.jit(lambda *a: jax.ffi.ffi_call(_ffi.TARGET, [shape, shape])(*a, **call.attributes()))(*on_device)
    assert same(on_device, [role[0] for role in arrays[:3]])
    assert same(new, [direct(arrays, lr=0.25)[role][0] for role in (0, 2)])


# ---- programs ----
def test_loops():
    (params, grads, exp_avgs, _) = lists(shapes=[(1000,), (3, 3)])
    rates = np.float32([0.5, 0.25, 0.125])
    want = [params, grads, exp_avgs, None]
    for lr in rates:
        want = direct(want, lr=float(lr))
    rates = jnp.asarray(rates)

    def body(k, state):
        return quern.jax.lion(state[0], grads, state[1], rates[k])

    start = (jax.tree.map(jnp.asarray, params), jax.tree.map(jnp.asarray, exp_avgs))
    assert same(jax.jit(lambda s: lax.fori_loop(0, 3, body, s))(start), [want[0], want[2]])
    scanned, _ = lax.scan(lambda s, lr: (quern.jax.lion(s[0], grads, s[1], lr), None), start, rates)
    assert same(scanned, [want[0], want[2]])


def test_steps_from_several_threads_at_once():
    arrays = lists(shapes=[(300000,), (70000,)])
    want = direct(arrays, lr=1e-2)
    step = jax.jit(quern.jax.lion)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: step(*arrays[:3], 1e-2), range(24)):
            assert same(got, [want[0], want[2]])


@ON_CPU
def test_sharded_arrays_under_shard_map():
    """Each device steps its own shard: the whole's bits, and no array travels."""
    program = """
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        import quern.jax
        try:
            from jax import shard_map
        except ImportError:
            import functools
            from jax.experimental.shard_map import shard_map
            shard_map = functools.partial(shard_map, check_rep=False)
        assert jax.device_count() == 4
        mesh = Mesh(np.array(jax.devices()), ("d",))
        p, g, m = (jnp.asarray(np.random.default_rng(k).standard_normal((8, 1000)), jnp.float32) for k in range(3))
        step = jax.jit(shard_map(quern.jax.lion, mesh=mesh, in_specs=(P("d"),) * 3 + (P(),), out_specs=(P("d"),) * 2))
        arguments = [jax.device_put(x, NamedSharding(mesh, P("d"))) for x in (p, g, m)] + [jnp.float32(0.1)]
        want, got = quern.jax.lion(p, g, m, jnp.float32(0.1)), step(*arguments)
        assert all((a == b).all() for a, b in zip(want, got)) and got[0].sharding.spec == P("d")
        assert "all-gather" not in step.lower(*arguments).compile().as_text()
        # The same values in every shard: other noise where the step is another, as docs/jax.md advises.
        p, g, m = (jnp.tile(x[:1], (4, 1)).astype(jnp.bfloat16) for x in (p, g, m))
        for apart in (0, 1):
            def draw(p, g, m):
                step = 4 * 7 + apart * jax.lax.axis_index("d")
                return quern.jax.lion(p, g, m, 1e-3, step=step, rounding="stochastic")
            new = shard_map(draw, mesh=mesh, in_specs=(P("d"),) * 3, out_specs=(P("d"),) * 2)(p, g, m)[0]
            assert len({np.asarray(row).tobytes() for row in new}) == (4 if apart else 1)
        print("same")
    """
    more = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    assert python(program, more) == "same"


@pytest.mark.cuda
@ON_CUDA
def test_captured_steps_see_other_numbers():
    """XLA made to capture all that it may, the step among it: replays read lr and gradients of their own time."""
    program = """
        import jax, jax.numpy as jnp, numpy as np
        import quern.jax
        p, g, m = (jnp.asarray(np.random.default_rng(k).standard_normal(5000), jnp.float32) for k in range(3))
        @jax.jit
        def step(p, g, m, lr):
            g = jnp.sin(g) * 2
            p, m = quern.jax.lion(p, g, m, lr * 0.5, cautious=True)
            return jnp.cos(p) + m, p, m, g
        cpu = jax.devices("cpu")[0]
        for k in range(6):
            lr = np.float32(0.125 * k)
            _, new, moved, grad = step(p, g + k, m, lr)
            with jax.default_device(cpu):
                want = quern.jax.lion(*(jax.device_put(x, cpu) for x in (p, grad, m)), float(lr) * 0.5, cautious=True)
            assert np.asarray(new).tobytes() == np.asarray(want[0]).tobytes(), k
            assert np.asarray(moved).tobytes() == np.asarray(want[1]).tobytes(), k
            p, m = new, moved
        print("same")
    """
    flags = "--xla_gpu_graph_min_graph_size=1 --xla_gpu_enable_command_buffer=FUSION,CUSTOM_CALL"
    assert python(program, {"XLA_FLAGS": flags}) == "same"


@pytest.mark.two_gpus
@ON_CUDA
def test_the_second_gpu():
    second = jax.devices("cuda")[1]
    arrays = lists(shapes=[(5000,)])
    got = quern.jax.lion(*[jax.device_put(role[0], second) for role in arrays[:3]], 1e-2, cautious=True)
    assert got[0].devices() == {second}
    assert same(got, [direct(arrays, lr=1e-2, cautious=True)[role][0] for role in (0, 2)])


# ---- refusals ----
P, G, M = (np.full(4, x, np.float32) for x in (1, 2, 3))
REFUSED = [
    (ValueError, "lr is -1, it must be a finite number of at least 0", dict(lr=-1)),
    (ValueError, "lr is nan", dict(lr=float("nan"))),
    (ValueError, "beta1 is 1, it must lie in [0, 1)", dict(betas=(1, 0.5))),
    (ValueError, "betas has 3 values, it must have 2", dict(betas=(0, 0, 0))),
    (TypeError, "betas is 0.9, it must be 2 numbers", dict(betas=0.9)),
    (TypeError, "lr is 'fast', it must be a number", dict(lr="fast")),
    (ValueError, "lr has the shape (2,), it must be one number", dict(lr=jnp.ones(2))),
    (TypeError, "lr is an array of int32, it must be a float", dict(lr=jnp.int32(1))),
    (TypeError, "step is an array of float32, it must be an integer", dict(step=jnp.float32(1))),
    (TypeError, "step is 0.5, it must be an integer", dict(step=0.5)),
    (ValueError, "step is -1, it must be in [0, 2^64)", dict(step=-1)),
    (ValueError, "seed is -1, it must be in [0, 2^64)", dict(seed=-1)),
    (TypeError, "cautious is 2, it must be True or False", dict(cautious=2)),
    (TypeError, "seed is an array; it is compiled in", dict(seed=jnp.int32(1))),
    (ValueError, "decay is 'linear', it must be one of 'lr', 'relative', 'squared'", dict(decay="linear")),
    (ValueError, "reference_lr is 0, it must be above 0", dict(decay="relative", reference_lr=0)),
    (ValueError, "tensor_id has the shape (2,), and there are 1 leaves", dict(tensor_id=[1, 2])),
    (ValueError, "agreement is given, which cautious reads", dict(agreement=np.zeros((1, 4), np.uint32))),
    (TypeError, "unexpected keyword argument 'weight_decy'", dict(weight_decy=1)),
    (TypeError, "grad is int32, it must be one of float32", dict(grads=G.astype(np.int32))),
    (TypeError, "there is no kernel for param f32, grad f32, momentum bf16", dict(exp_avgs=M.astype(NUMPY["bf16"]))),
    (TypeError, "there is no kernel for param f32, grad f32, momentum f32, master f32", dict(masters=M)),
    (ValueError, "grad[0] has the shape 3 and param[0] has 4", dict(grads=G[:3])),
    (ValueError, "grads has the structure PyTreeDef([*])", dict(grads=[G])),
    (ValueError, "leaf 0 of grads is None", dict(grads=None)),
]


@pytest.mark.parametrize(("error", "words", "change"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_refusals_before_anything_runs(error, words, change):
    with pytest.raises(error) as caught:
        quern.jax.lion(**{**dict(params=P, grads=G, exp_avgs=M), **change})
    assert words in str(caught.value)
    if not isinstance(change.get("lr"), str):  # jit itself refuses text
        with pytest.raises(error) as caught:
            jax.jit(lambda: quern.jax.lion(**{**dict(params=P, grads=G, exp_avgs=M), **change}))()
        assert words in str(caught.value)


@ON_CPU
def test_a_number_in_an_array_is_refused_when_the_host_reads_it():
    params = jnp.asarray(P)
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="lion: lr is -1, it must be"):
        jax.block_until_ready(quern.jax.lion(params, G, M, jnp.float32(-1)))
    assert same(params, P)


def test_the_handler_refuses_with_its_own_sentence():
    shape = jax.ShapeDtypeStruct((4,), jnp.float32)
    _ffi.register()
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match='the attribute "rate" is none of its params'):
        attributes = {"op": "lion", "param": 1, "grad": 1, "momentum": 1, "rate": 0.5}
        jax.block_until_ready(jax.ffi.ffi_call(_ffi.TARGET, [shape, shape])(P, G, M, **attributes))


def test_neither_batched_nor_differentiated():
    with pytest.raises(NotImplementedError, match="quern.jax.lion: a step is not batched by vmap"):
        jax.vmap(lambda p: quern.jax.lion(p, G, M))(np.stack([P, P]))
    with pytest.raises(TypeError, match="quern.jax.lion: an optimizer's step is not differentiated"):
        jax.grad(lambda p: quern.jax.lion(p, G, M)[0].sum())(P)
