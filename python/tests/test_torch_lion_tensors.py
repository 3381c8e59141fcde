# SPDX-License-Identifier: Apache-2.0
"""quern.torch.Lion and what tensors can be: layouts, types, views, what moves or is exchanged between two steps,
and what is refused with nothing changed. Each is asked both ways of looking at tensors: DLPack's table for C, and
Python."""

import gc

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
from quern.torch import _watch  # noqa: E402
from torch_models import give_grads, parameters  # noqa: E402
from torch_oracle import bits, lion, same_bits  # noqa: E402

Lion = quern.torch.Lion


@pytest.fixture(params=["table", "python"], autouse=True)
def way(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(_watch, "_read", None)
    elif _watch._read is None:
        assert not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), "DLPack's table is there and was not taken"


def one_step(p, lr=1e-2, **options):
    """The expected p after a step, from its present gradient and state; a callable that holds it against p."""
    optimizer = options.pop("optimizer")
    state = optimizer.state.get(p, {})
    m = state["exp_avg"].clone() if "exp_avg" in state else torch.zeros(p.shape)
    real = torch.view_as_real if p.is_complex() else (lambda x: x)
    if p.is_complex() and "exp_avg" not in state:
        m = torch.zeros(p.shape, dtype=p.dtype)
    grad = p.grad.resolve_conj().resolve_neg()
    wanted = lion(real(p.detach()), real(grad), real(m), lr=lr)

    def holds():
        got = real(p.detach()), real(optimizer.state[p]["exp_avg"])
        return same_bits(got[0], wanted[0].to(got[0].dtype)) and same_bits(got[1], wanted[1].to(got[1].dtype))

    return holds


def steps_right(optimizer, params, lr=1e-2):
    checks = [one_step(p, lr, optimizer=optimizer) for p in params if p.grad is not None]
    optimizer.step()
    assert all(check() for check in checks)


def refused(optimizer, params, error, sentence):
    """The step raises, and no tensor changes."""
    before = [bits(p).clone() for p in params]
    momenta = {k: v["exp_avg"].clone() for k, v in optimizer.state.items() if "exp_avg" in v}
    with pytest.raises(error, match=sentence):
        optimizer.step()
    assert all(torch.equal(bits(p), b) for p, b in zip(params, before))
    assert all(torch.equal(optimizer.state[k]["exp_avg"], m) for k, m in momenta.items())


# ---- layouts ----
def test_channels_last_weights_with_gradients_of_either_layout():
    p = torch.nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last))
    one = torch.nn.Parameter(torch.randn(4, 3, 1, 1).to(memory_format=torch.channels_last))
    optimizer = Lion([p, one], lr=1e-2)
    for memory_format in (torch.channels_last, torch.contiguous_format, torch.channels_last):
        for q in (p, one):
            q.grad = torch.randn(q.shape).to(memory_format=memory_format)
        steps_right(optimizer, [p, one])
        assert optimizer.state[p]["exp_avg"].stride() == p.stride()


@pytest.mark.parametrize("later", [False, True])
def test_gradients_that_are_not_dense_are_stepped_as_if_they_were(later):
    (p,) = parameters([(6, 8)])
    optimizer = Lion([p], lr=1e-2)
    if later:
        give_grads([p], 0)
        optimizer.step()
    for grad in (torch.randn(8, 6).t(), torch.randn(1, 8).expand(6, 8), torch.randn(12, 16)[::2, ::2]):
        assert grad.stride() != p.stride()
        p.grad = grad
        steps_right(optimizer, [p])


def test_a_parameter_that_is_not_dense_is_refused_by_its_name():
    a, b = torch.nn.Parameter(torch.randn(4)), torch.nn.Parameter(torch.randn(6, 8)[:, ::2])
    optimizer = Lion([a, b], lr=1e-2)
    give_grads([a, b], 0)
    refused(optimizer, [a, b], ValueError, r"param\[1\].*not dense.*parameter 1 of group 0")


def test_transposed_dense_parameters_are_dense():
    p = torch.nn.Parameter(torch.randn(6, 8).t())
    optimizer = Lion([p], lr=1e-2)
    for seed in range(2):
        give_grads([p], seed)
        steps_right(optimizer, [p])


# ---- types ----
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_parameters_are_rounded_once_and_momenta_are_f32(dtype):
    params = parameters(dtype=dtype, scale=1.0)
    optimizer = Lion(params, lr=1e-2)
    for seed in range(3):
        give_grads(params, seed)
        steps_right(optimizer, params)
    assert all(optimizer.state[p]["exp_avg"].dtype == torch.float32 for p in params)


@pytest.mark.parametrize("said", [torch.bfloat16, "bfloat16", "param"])
def test_momentum_dtype(said):
    params = parameters(dtype=torch.bfloat16, scale=1.0)
    optimizer = Lion(params, lr=1e-2, momentum_dtype=said)
    for seed in range(3):
        give_grads(params, seed)
        steps_right(optimizer, params)
    assert all(optimizer.state[p]["exp_avg"].dtype == torch.bfloat16 for p in params)


def test_masters_move_where_16_bits_would_not():
    params = parameters([(1000,)], torch.bfloat16, scale=1.0)
    (p,) = params
    start = p.detach().clone()
    optimizer = Lion(params, lr=1e-5, master_weights=True)
    master, m = start.float(), torch.zeros(1000)
    for seed in range(5):
        give_grads(params, seed)
        master, m = lion(master, p.grad, m, lr=1e-5)
        optimizer.step()
        assert same_bits(optimizer.state[p]["master"], master) and same_bits(p.data, master.to(torch.bfloat16))
    assert not torch.equal(master, start.float())


def test_f32_parameters_have_no_masters():
    params = parameters([(10,)])
    optimizer = Lion(params, master_weights=True)
    give_grads(params, 0)
    optimizer.step()
    assert set(optimizer.state[params[0]]) == {"exp_avg"}


def test_nearest_freezes_weights_and_stochastic_rounding_does_not():
    for stochastic, least, most in ((False, 0, 0.2), (True, 0.05, 1)):
        (p,) = parameters([(20000,)], torch.bfloat16, scale=0.02)
        optimizer = Lion([p], lr=1e-5, stochastic_rounding=stochastic)
        start = p.detach().clone()
        mean = 0.0
        for _ in range(20):
            p.grad = torch.ones_like(p)
            optimizer.step()
        moved = (p != start).float().mean().item()
        mean = (p.detach().float() - start.float()).mean().item()
        assert least <= moved <= most
        if stochastic:
            assert mean == pytest.approx(-20e-5, rel=0.05)


def test_stochastic_rounding_depends_on_seed_step_and_place_and_on_nothing_else():
    def run(seed=0, threads=1, groups=False, steps=3):
        params = parameters([(500,), (700,)], torch.bfloat16)
        given = [dict(params=[p]) for p in params] if groups else params
        optimizer = Lion(given, lr=1e-4, stochastic_rounding=True, seed=seed)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        for step in range(steps):
            give_grads(params, step)
            optimizer.step()
        torch.set_num_threads(before)
        return [p.detach().clone() for p in params]

    def equal(one, other):
        return all(same_bits(a, b) for a, b in zip(one, other))

    assert equal(run(), run(threads=2)) and equal(run(), run(groups=True))
    assert not equal(run(), run(seed=1))
    a, b = parameters([(500,)] * 2, torch.bfloat16)
    b.data.copy_(a)
    optimizer = Lion([a, b], lr=1e-4, stochastic_rounding=True)
    a.grad, b.grad = torch.ones_like(a), torch.ones_like(b)
    optimizer.step()
    assert not torch.equal(a, b), "two tensors draw the same numbers"


def test_f32_and_16_bit_parameters_in_one_group():
    params = parameters([(9,), (10,)]) + parameters([(11,), (12,)], torch.bfloat16, scale=1.0)
    params = [params[k] for k in (0, 2, 1, 3)]
    optimizer = Lion(params, lr=1e-2)
    for seed in range(2):
        give_grads(params, seed)
        steps_right(optimizer, params)


def test_complex_parameters_are_pairs_of_reals():
    p = torch.nn.Parameter(torch.randn(5, 4, dtype=torch.complex64))
    q = torch.nn.Parameter(torch.randn(6))
    optimizer = Lion([p, q], lr=1e-2)
    for grad in (torch.randn_like(p), torch.randn_like(p).conj(), torch.randn(4, 5, dtype=p.dtype).t()):
        p.grad, q.grad = grad.detach(), torch.randn(6)
        steps_right(optimizer, [p, q])
    assert optimizer.state[p]["exp_avg"].dtype == torch.complex64


def test_a_lazily_negated_gradient_is_negated():
    p = torch.nn.Parameter(torch.randn(1))
    optimizer = Lion([p], lr=1e-2)
    for _ in range(2):
        p.grad = torch.randn(1, dtype=torch.complex64).conj().imag
        assert p.grad.is_neg()
        steps_right(optimizer, [p])


def test_wrong_types_are_refused_with_the_table():
    p = torch.nn.Parameter(torch.randn(4, dtype=torch.float64))
    optimizer = Lion([p])
    give_grads([p], 0)
    with pytest.raises(TypeError, match="f64.*f32"):
        optimizer.step()
    p = torch.nn.Parameter(torch.randn(4).to(torch.float8_e5m2))
    optimizer = Lion([p])
    p.grad = torch.zeros(4).to(torch.float8_e5m2)
    with pytest.raises(TypeError, match="float8_e5m2"):
        optimizer.step()


def test_f16_momentum_is_refused_without_a_master():
    params = parameters([(5,)], torch.float16)
    with pytest.raises(ValueError, match="without master_weights its momentum may be torch.bfloat16 or torch.float32"):
        Lion(params, momentum_dtype="param")
    optimizer = Lion(params, momentum_dtype="param", master_weights=True)
    give_grads(params, 0)
    optimizer.step()
    assert optimizer.state[params[0]]["exp_avg"].dtype == torch.float16


# ---- what is refused ----
def test_sparse_gradients_are_refused_with_a_sentence():
    embedding = torch.nn.Embedding(10, 3, sparse=True)
    optimizer = Lion(embedding.parameters(), lr=1e-2)
    embedding(torch.tensor([1, 2])).sum().backward()
    refused(optimizer, list(embedding.parameters()), RuntimeError, "sparse gradients are not supported")
    embedding.weight.grad = embedding.weight.grad.to_dense()
    steps_right(optimizer, [embedding.weight])
    embedding.weight.grad = embedding.weight.grad.to_sparse()
    refused(optimizer, list(embedding.parameters()), RuntimeError, "sparse gradients are not supported")


def test_parameters_that_share_memory_are_refused():
    whole = torch.randn(10)
    a, b = torch.nn.Parameter(whole[:6]), torch.nn.Parameter(whole[5:])
    optimizer = Lion([a, b], lr=1e-2)
    give_grads([a, b], 0)
    refused(optimizer, [a, b], ValueError, r"param\[0\].*param\[1\].*share memory.*parameter 0.*parameter 1")


def test_a_gradient_that_is_its_parameter_is_refused_and_shared_gradients_are_fine():
    a, b = parameters([(6,), (6,)])
    optimizer = Lion([a, b], lr=1e-2)
    give_grads([a, b], 0)
    steps_right(optimizer, [a, b])
    a.grad = b.grad
    steps_right(optimizer, [a, b])
    b.grad = b.data
    refused(optimizer, [a, b], ValueError, "share memory")
    give_grads([a, b], 1)
    steps_right(optimizer, [a, b])


def test_names_of_parameters_are_in_the_sentences():
    model = torch.nn.Linear(4, 4)
    model.weight.data = torch.randn(8, 4)[::2]
    if torch.__version__ < "2.6":  # torch's own optimizers take no names yet
        with pytest.raises(TypeError, match="tuple"):
            Lion(model.named_parameters())
        return
    optimizer = Lion(model.named_parameters(), lr=1e-2)
    give_grads(model.parameters(), 0)
    refused(optimizer, list(model.parameters()), ValueError, "not dense.*'weight'")


# ---- between two steps ----
def test_what_is_exchanged_between_steps_is_seen():
    params = parameters([(40,), (5, 8), (7,)])
    a, b, c = params
    optimizer = Lion(params, lr=1e-2)

    def check(seed):
        give_grads(params, seed)
        steps_right(optimizer, params)
        gc.collect()

    check(0)
    a.data = torch.randn(40)  # elsewhere
    check(1)
    a.data = torch.randn(44)[4:]
    check(2)
    optimizer.state[b]["exp_avg"] = torch.randn(5, 8)  # another tensor
    check(3)
    optimizer.state[b]["exp_avg"].data = torch.randn(5, 8)  # the same one elsewhere
    check(4)
    optimizer.state[c] = {"exp_avg": torch.randn(7)}  # another dictionary
    check(5)
    optimizer.state[c] = {}  # begins anew
    check(6)
    del optimizer.state[a]
    check(7)
    a.data, optimizer.state[a]["exp_avg"] = torch.randn(9), torch.randn(9)  # another shape
    a.grad = None
    check(8)
    b.data = b.data.t()  # another layout at the same address
    optimizer.state[b]["exp_avg"].data = optimizer.state[b]["exp_avg"].data.t()
    b.grad = None
    check(9)
    params[2] = optimizer.param_groups[0]["params"][2] = torch.nn.Parameter(torch.randn(3, 3))  # another parameter
    check(10)
    a.data, optimizer.state[a]["exp_avg"] = a.data.bfloat16(), optimizer.state[a]["exp_avg"].bfloat16()  # another type
    a.grad = None
    check(11)


def test_a_gradient_whose_shape_was_changed_behind_torchs_back_is_refused():
    a, b = parameters([(40,), (6,)])
    optimizer = Lion([a, b], lr=1e-2)
    give_grads([a, b], 0)
    optimizer.step()
    give_grads([a, b], 1)
    a.grad.data = torch.randn(10)
    refused(optimizer, [a, b], ValueError, r"grad\[0\] has the shape 10 and param\[0\] has 40")


@pytest.mark.parametrize("dense", [True, False])
def test_gradients_are_not_kept_alive(dense):
    import weakref

    (p,) = parameters([(40,)])
    optimizer = Lion([p])
    for _ in range(2):
        p.grad = torch.randn(40) if dense else torch.randn(80)[::2]  # of which a copy is made
        reference = weakref.ref(p.grad)
        optimizer.step()
        optimizer.zero_grad()
        gc.collect()
        assert reference() is None


def test_version_counters_grow_and_autograd_records_nothing():
    (p,) = parameters([(4,)], torch.bfloat16)
    optimizer = Lion([p], lr=1e-2, master_weights=True)
    give_grads([p], 0)
    optimizer.step()
    give_grads([p], 1)
    written = [p, *optimizer.state[p].values()]
    versions = [t._version for t in written]
    loss = (p * p).sum()
    optimizer.step()
    assert all(t._version > v for t, v in zip(written, versions)) and len(written) == 3
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    assert p.grad_fn is None and p.is_leaf and p.requires_grad
    assert not any(t.requires_grad for t in optimizer.state[p].values())


def test_inference_mode_and_parameters_that_need_no_gradient():
    p = torch.nn.Parameter(torch.randn(4), requires_grad=False)
    with torch.inference_mode():
        q = torch.nn.Parameter(torch.randn(4), requires_grad=False)
    optimizer = Lion([p, q], lr=1e-2)
    give_grads([p], 0)
    with torch.inference_mode():
        give_grads([q], 1)
        steps_right(optimizer, [p, q])
    give_grads([p], 2)
    p.grad, q.grad = p.grad, None
    steps_right(optimizer, [p])


def test_a_long_list():
    params = parameters([(3,)] * 3000)
    optimizer = Lion(params, lr=1e-2)
    for seed in range(2):
        give_grads(params, seed)
        steps_right(optimizer, params)
