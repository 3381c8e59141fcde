# SPDX-License-Identifier: Apache-2.0
"""torch ops: what they compute, on lists and single tensors, and what they refuse. What torch.compile makes of them is
in test_torch_compile.py."""

import gc
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")

import torch_oracle as oracle  # noqa: E402
from quern._ops import op  # noqa: E402
from quern.torch import ops  # noqa: E402
from quern.torch.lion_names import LionOptimizerStep, lion_foreach, lion_step  # noqa: E402

LION = op("lion")
SHAPES = [(5, 7), (), (33,), (0,), (2, 3, 4)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def lists(device="cpu", param=torch.float32, grad=None, momentum=None, shapes=SHAPES, seed=0):
    """params, grads, exp_avgs of these types."""
    random = torch.Generator().manual_seed(seed)
    types = (param, grad or param, momentum or param)
    return tuple([torch.randn(s, generator=random).to(device, dtype) for s in shapes] for dtype in types)


def copies(many):
    return [[tensor.clone() for tensor in of_role] for of_role in many]


def same(one, other):
    """The very bits."""
    return all(oracle.same_bits(a, b) for of_one, of_other in zip(one, other) for a, b in zip(of_one, of_other))


def stepped(many, **numbers):
    """The oracle's step over f32 lists: params, grads, exp_avgs."""
    made = [oracle.lion(p, g, m, **numbers) for p, g, m in zip(*many)]
    return [[p for p, _ in made], many[1], [m for _, m in made]]


@pytest.mark.parametrize("device", DEVICES)
def test_several_steps_over_a_list_have_the_oracles_bits(device):
    ours = lists(device)
    theirs = copies([[tensor.cpu() for tensor in of_role] for of_role in ours])
    for seed in range(1, 5):
        grads = lists(device, seed=seed)[1]
        torch.ops.quern.lion_(ours[0], grads, ours[2], lr=0.01, beta1=0.8, beta2=0.95, weight_decay=0.1)
        theirs[1] = [grad.cpu() for grad in grads]
        theirs = stepped(theirs, lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)
    assert same([ours[0], ours[2]], [theirs[0], theirs[2]])


@pytest.mark.parametrize("device", DEVICES)
def test_every_name_is_the_same_op(device):
    numbers = (0.01, 0.8, 0.95, 0.1)
    by_list, by_one, by_step, by_foreach, by_layer = (lists(device) for _ in range(5))
    names = dict(zip(("lr", "beta1", "beta2", "weight_decay"), numbers))
    ops.lion_(*by_list, **names)
    lion_foreach(by_foreach[0], by_foreach[2], by_foreach[1], *numbers, 1e-8)
    for k in range(len(SHAPES)):
        ops.lion_(by_one[0][k], by_one[1][k], by_one[2][k], **names)
        p, g, m = (of_role[k] for of_role in by_step)
        lion_step(p, m, g, *numbers, 1e-8)
        p, g, m = (of_role[k] for of_role in by_layer)
        LionOptimizerStep()(p, m, g, *numbers, 1e-8)
    for other in (by_one, by_step, by_foreach, by_layer):
        assert same(by_list, other)


def test_the_schema_is_the_descriptions():
    for found, name in ((ops.lion_.packet.default, "plural"), (ops.lion_.packet.single, "framework_name")):
        arguments = {argument.name: argument for argument in found._schema.arguments}
        roles = {getattr(role, name): role for role in LION.roles}
        assert list(arguments) == [*roles, *LION.params]
        for argument, role in roles.items():
            mutated = arguments[argument].alias_info
            assert (mutated is not None and mutated.is_write) == role.written
            assert arguments[argument].has_default_value() == role.optional
        for argument, param in LION.params.items():
            assert arguments[argument].kwarg_only
            assert arguments[argument].default_value == param.default
    for made in (lion_step, lion_foreach):
        arguments = made.packet.default._schema.arguments
        assert [bool(a.alias_info and a.alias_info.is_write) for a in arguments[:3]] == [True, True, False]
        assert [a.name for a in arguments[3:]] == ["lr", "beta1", "beta2", "weight_decay", "eps"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masters_are_updated_and_the_short_copies_follow(device, dtype):
    params, grads, exp_avgs = lists(device, dtype, dtype, torch.float32)
    masters = [param.float() for param in params]
    theirs = stepped([[t.float().cpu() for t in r] for r in (masters, grads, exp_avgs)], lr=0.01, weight_decay=0.1)
    ops.lion_(params, grads, exp_avgs, masters, lr=0.01, weight_decay=0.1)
    assert same([masters, exp_avgs], [theirs[0], theirs[2]])
    assert same([params], [[master.to(dtype) for master in masters]])


@pytest.mark.parametrize("device", DEVICES)
def test_options_reach_the_op(device):
    """Each in a way that its absence would show."""
    plain, up = lists(device), lists(device)
    ops.lion_([*plain[0]], [-g for g in plain[1]], plain[2], lr=0.5)
    ops.lion_(*up, lr=0.5, maximize=True)
    assert same([plain[0], plain[2]], [up[0], up[2]])

    before, still = lists(device), lists(device)
    ops.lion_(*still, found_inf=torch.ones((), device=device))
    assert same(before, still)

    scaled, halved = lists(device), lists(device)
    ops.lion_(*scaled, grad_scale=torch.full((), 2.0, device=device))
    ops.lion_(halved[0], [g / 2 for g in halved[1]], halved[2])
    assert same([scaled[0], scaled[2]], [halved[0], halved[2]])

    relative, by_hand = lists(device), lists(device)
    ops.lion_(*relative, lr=0.25, decay="relative", reference_lr=0.5, weight_decay=0.125)
    ops.lion_(*by_hand, lr=0.25, weight_decay=0.25)
    assert same(relative, by_hand)

    p, g, m = torch.ones(4, device=device), torch.tensor([1.0, -1, 1, 1], device=device), torch.ones(4, device=device)
    ops.lion_(p, g, 2 * m, lr=0.25, cautious=True)  # 3 of 4 agree: the step is 0.25 * 4 / 3 where they do
    assert torch.equal(p.cpu(), 1 - torch.tensor([1.0, 0, 1, 1]) * (torch.tensor(4 / 3) * 0.25))


@pytest.mark.parametrize("device", DEVICES)
def test_stochastic_rounding_follows_seed_step_and_place(device):
    def step(**settings):
        made = lists(device, torch.bfloat16, momentum=torch.float32, shapes=[(1000,), (1000,)])
        ops.lion_(*made, lr=1e-4, rounding="stochastic", **settings)
        return made[0]

    base = step(seed=3, step=7)
    assert same([base], [step(seed=3, step=7)])
    assert not same([base], [step(seed=4, step=7)])
    assert not same([base], [step(seed=3, step=8)])
    assert not same([base], [step(seed=3, step=7, first_element=[5, 5])])
    assert same([base], [step(seed=3, step=7, tensor_id=[0, 1])])
    assert not same([step(seed=(1 << 64) - 3)], [step(seed=(1 << 63) - 3)])
    one = lists(device, torch.bfloat16, momentum=torch.float32, shapes=[(1000,), (1000,)])
    ops.lion_(*(r[1] for r in one), lr=1e-4, rounding="stochastic", seed=3, step=7, tensor_id=[1])
    assert same([base[1:]], [one[0][1:]])


@pytest.mark.parametrize("device", DEVICES)
def test_a_list_of_several_types_is_stepped_as_one(device):
    """Each tensor keeps its number in the whole list, so that the noise is that of a list of one type."""
    types = [torch.bfloat16, torch.float32, torch.bfloat16, torch.float16]
    mixed = [[], [], []]
    apart = [[], [], []]
    for k, dtype in enumerate(types):
        for made in (mixed, apart):
            p, g, m = lists(device, dtype, dtype, torch.float32, shapes=[(500,)], seed=k)
            for of_role, tensor in zip(made, (p[0], g[0], m[0])):
                of_role.append(tensor)
    ops.lion_(*mixed, rounding="stochastic", seed=1, first_element=[0, 10, 20, 30])
    for k in range(len(types)):
        one = [[of_role[k]] for of_role in apart]
        ops.lion_(*one, rounding="stochastic", seed=1, first_element=[10 * k], tensor_id=[k])
    assert same(mixed, apart)


def test_where_one_type_of_several_is_refused_nothing_is_written():
    params, grads, exp_avgs = lists(shapes=[(4,), (4,)])
    params[1] = params[1].to(torch.bfloat16)
    exp_avgs[1] = exp_avgs[1].to(torch.float16)  # a momentum that goes with no bf16 param
    before = copies((params, grads, exp_avgs))
    with pytest.raises(TypeError, match="bf16"):
        ops.lion_(params, grads, exp_avgs)
    assert same(before, (params, grads, exp_avgs))


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_may_be_tensors_where_the_list_is_or_on_the_host(device):
    numbers = dict(lr=0.25, beta1=0.75, weight_decay=0.5)
    for place in {"cpu", device}:
        as_floats, as_tensors, mixed = lists(device), lists(device), lists(device)
        ops.lion_(*as_floats, **numbers)
        ops.lion_(*as_tensors, **{name: torch.tensor(value, device=place) for name, value in numbers.items()})
        ops.lion_(*mixed, **{**numbers, "lr": torch.tensor([0.25], dtype=torch.float64, device=place)})
        assert same(as_floats, as_tensors)
        assert same(as_floats, mixed)


@pytest.mark.parametrize("device", DEVICES)
def test_the_hyper_struct_takes_the_numbers_place(device):
    live = torch.zeros(6, dtype=torch.float64, device=device)
    for name, _ in LION.Hyper._fields_:
        if name != "step":
            live[getattr(LION.Hyper, name).offset // 8] = dict(lr=0.25, beta1=0.75).get(name, LION.params[name].default)
    ours, theirs = lists(device), lists(device)
    ops.lion_(*ours, hyper=live)
    ops.lion_(*theirs, lr=0.25, beta1=0.75)
    assert same(ours, theirs)


def test_versions_are_counted_so_that_autograd_sees_the_change():
    params, grads, exp_avgs = lists()
    ops.lion_(params, grads, exp_avgs)
    assert [tensor._version for tensor in params + exp_avgs] == [1] * 2 * len(params)
    assert [tensor._version for tensor in grads] == [0] * len(grads)
    with torch.inference_mode():  # tensors without a version
        inside = lists()
        ops.lion_(*inside)
    assert same([params], [inside[0]])


def test_complex_tensors_are_pairs_of_reals():
    params, grads, exp_avgs = lists(param=torch.complex64, shapes=[(6,), (2, 3)])
    real = copies([[torch.view_as_real(tensor) for tensor in of_role] for of_role in (params, grads, exp_avgs)])
    ops.lion_(params, grads, exp_avgs)
    ops.lion_(*real)
    assert same([[torch.view_as_real(tensor) for tensor in params]], [real[0]])


def test_an_empty_list_is_a_step_over_nothing_and_settings_are_still_checked():
    torch.ops.quern.lion_([], [], [])
    with pytest.raises(ValueError, match="lr is -1"):
        torch.ops.quern.lion_([], [], [], lr=-1.0)


def test_two_threads_may_step_at_once():
    ours = [lists(shapes=[(10000,)] * 4, seed=k) for k in range(4)]
    theirs = [copies(made) for made in ours]
    threads = [threading.Thread(target=lambda made=made: [ops.lion_(*made) for _ in range(20)]) for made in ours]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for made in theirs:
        for _ in range(20):
            ops.lion_(*made)
    assert all(map(same, ours, theirs))


# ---- what is kept from call to call ----
CHANGES = [
    lambda p, g, m: (p, [g[0][:3], *g[1:]], m),
    lambda p, g, m: (p, [g[0].reshape(7, 5), *g[1:]], m),
    lambda p, g, m: (p, [g[0].t().contiguous().t(), *g[1:]], m),
    lambda p, g, m: (p, [g[0].int(), *g[1:]], m),
    lambda p, g, m: (p, [*g[:4], g[4].to(torch.float64)], m),
    lambda p, g, m: (p, [g[0].to_sparse(), *g[1:]], m),
    lambda p, g, m: (p, [p[0], *g[1:]], m),
    lambda p, g, m: (p, g, [p[0], *m[1:]]),
    lambda p, g, m: ([p[0], p[0].reshape(-1)[:33].clone().t(), *p[2:]], g, m),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("steps", [1, 3])
def test_what_changes_between_steps_is_refused_as_in_the_first(change, steps):
    """A list that was stepped before is known; one that is not like it any more is looked at as if it were new."""
    many = lists()
    for _ in range(steps):
        ops.lion_(*many)
    before = copies(many)
    with pytest.raises((ValueError, TypeError)):
        ops.lion_(*change(*many))
    assert same(before, many)
    theirs = stepped(copies(many), lr=0.1)
    ops.lion_(*many, lr=0.1)
    assert same(many, theirs)


@pytest.mark.parametrize("device", DEVICES)
def test_what_may_change_between_steps_may(device):
    """Masters come and go, types and settings change, lists grow, tensors are replaced."""
    params, grads, exp_avgs = lists(device, torch.bfloat16, momentum=torch.float32)
    masters = [param.float() for param in params]
    for k in range(3):
        ops.lion_(params, grads, exp_avgs, masters, lr=0.1)
        ops.lion_(params, grads, exp_avgs, lr=0.1, cautious=k == 1, rounding="stochastic", step=k, tensor_id=range(5))
        ops.lion_(params[:2], grads[:2], exp_avgs[:2], lr=0.1)
        ops.lion_(params, [grad.float() for grad in grads], exp_avgs, lr=0.1)
        exp_avgs = [momentum.clone() for momentum in exp_avgs]
    fresh, theirs = lists(device), lists(device)
    for _ in range(3):
        ops.lion_(*fresh, lr=0.1)
        for k in range(5):
            ops.lion_(*([of_role[k].clone()] for of_role in theirs))  # other tensors in between
        theirs = stepped([[t.cpu() for t in of_role] for of_role in theirs], lr=0.1)
        theirs = [[t.to(device) for t in of_role] for of_role in theirs]
    assert same([fresh[0], fresh[2]], [theirs[0], theirs[2]])


def test_roles_may_change_places_between_steps():
    """As with an allocator that hands out again what was let go: the gradient is where the parameter was."""
    params, grads, exp_avgs = lists(shapes=[(64,)])
    for _ in range(3):
        ops.lion_(params, grads, exp_avgs, lr=0.1)
        grads = [params[0].data]
        params[0].data = params[0].clone()
        theirs = stepped(copies([params, grads, exp_avgs]), lr=0.1)
        ops.lion_(params, grads, exp_avgs, lr=0.1)
        assert same([params, exp_avgs], [theirs[0], theirs[2]])


def test_no_tensor_is_kept():
    many = lists()
    for _ in range(3):
        ops.lion_(*many)
    gone = [weakref.ref(tensor) for of_role in many for tensor in of_role]
    del many
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


# ---- refused ----
def sparse(tensor):
    return tensor.to_sparse()


def replaced(role, place, change):
    def make(many):
        many[role][place] = change(many[role][place])

    return make


REFUSED = [
    (replaced(1, 2, lambda t: t[1:]), {}, ValueError, r"shape"),
    (lambda many: many[1].pop(), {}, ValueError, "params has 5 tensors and grads 4"),
    (replaced(1, 0, sparse), {}, TypeError, r"grads\[0\] is torch.sparse_coo"),
    (replaced(1, 0, lambda t: t.double()), {}, TypeError, "f64"),
    (replaced(0, 0, lambda t: t.to(torch.int32)), {}, TypeError, "int32"),
    (replaced(0, 0, lambda t: t.t()), {}, ValueError, r"grad\[0\] has the shape 5x7 and param\[0\] has 7x5"),
    (
        replaced(2, 0, lambda t: torch.zeros(1).expand(5, 7)),
        {},
        ValueError,
        r"momentum\[0\] \(5x7\) is laid out in another order",
    ),
    (lambda many: many[2].__setitem__(0, many[0][0]), {}, ValueError, "share memory"),
    (lambda many: None, dict(lr=-1.0), ValueError, "lr is -1"),
    (lambda many: None, dict(lr=float("nan")), ValueError, "lr is nan"),
    (lambda many: None, dict(beta1=1.0), ValueError, "beta1 is 1"),
    (lambda many: None, dict(seed=-3), ValueError, r"seed is -3, it must be in \[0, 2\^64\)"),
    (lambda many: None, dict(decay="cosine"), ValueError, "'cosine', it must be one of 'lr', 'relative', 'squared'"),
    (lambda many: None, dict(tensor_id=[1, 2]), ValueError, "tensor_id has 2 numbers for 5 tensors"),
    (lambda many: None, dict(grad_scale=torch.ones(2)), ValueError, "one value of float32"),
    (lambda many: None, dict(found_inf=torch.ones((), dtype=torch.float64)), ValueError, "one value of float32"),
    (lambda many: None, dict(hyper=torch.zeros(5, dtype=torch.float64)), ValueError, "48 bytes"),
    (lambda many: None, dict(agreement=torch.zeros(9, dtype=torch.int64)), ValueError, "10 values of int64"),
    (lambda many: None, dict(lr=torch.ones(2)), ValueError, "must be one number"),
]


@pytest.mark.parametrize(("spoil", "settings", "error", "sentence"), REFUSED)
def test_bad_input_is_refused_and_changes_nothing(spoil, settings, error, sentence):
    many = lists()
    spoil(many)
    dense = [[t.to_dense() if t.is_sparse else t for t in of_role] for of_role in many]
    before = copies(dense)
    with pytest.raises(error, match=sentence):
        ops.lion_(*many, **settings)
    assert all(torch.equal(a, b) for r, s in zip(dense, before) for a, b in zip(r, s))


def test_an_unknown_setting_and_too_many_arguments_are_type_errors():
    with pytest.raises((TypeError, RuntimeError), match="learning_rate"):
        ops.lion_(*lists(), learning_rate=0.1)
    with pytest.raises(TypeError, match="takes 8 arguments without names, 9 were given"):
        lion_step(*(t[0] for t in lists()), 1, 2, 3, 4, 5, 6)


def test_inputs_that_autograd_would_follow_are_refused_by_name():
    params, grads, exp_avgs = lists()
    params[1].requires_grad_()
    before = copies((params, exp_avgs))
    with pytest.raises(RuntimeError, match=r"params\[1\] requires grad .* torch.no_grad"):
        torch.ops.quern.lion_(params, grads, exp_avgs)
    with pytest.raises(RuntimeError, match=r"lion_step has no derivative, and p requires grad"):
        lion_step(params[1], exp_avgs[1], grads[1])
    assert same(before, (params, exp_avgs))
    with torch.no_grad():
        torch.ops.quern.lion_(params, grads, exp_avgs)
    assert not same(before, (params, exp_avgs))


def test_vmap_is_refused():
    p, g, m = (torch.ones(3, 4) for _ in range(3))
    with pytest.raises(RuntimeError, match="no rule for torch.vmap"):
        torch.vmap(lambda p, g, m: ops.lion_([p], [g], [m]))(p, g, m)
    assert torch.equal(p, torch.ones(3, 4))


def test_tensors_without_memory():
    """On the device meta a step has nothing to do, as torch has it for its own ops, but lists must still fit."""
    meta = [[tensor.to("meta") for tensor in of_role] for of_role in lists()]
    ops.lion_(*meta)
    with pytest.raises(ValueError, match="params has 5 tensors and grads 4"):
        ops.lion_(meta[0], meta[1][:-1], meta[2])
    here = lists()
    before = copies(here)
    with pytest.raises(ValueError, match=r"grads\[0\] is on cpu and params\[0\] on meta"):
        ops.lion_([tensor.to("meta") for tensor in here[0]], here[1], here[2], lr=0.5)
    assert same(before, here)


@pytest.mark.cuda
def test_devices_that_differ_are_refused():
    here, there = lists(), lists("cuda")
    before = copies((*here, *there))
    with pytest.raises(ValueError, match=r"grads\[0\] is on cuda:0 and params\[0\] on cpu"):
        ops.lion_(here[0], there[1], here[2])
    with pytest.raises(ValueError, match="grad_scale is on cpu"):
        ops.lion_(*there, grad_scale=torch.ones(()))
    assert same(before, (*here, *there))


@pytest.mark.cuda
def test_a_list_may_be_spread_over_devices():
    shapes = [(64,), (8, 8)]
    here, there = lists(shapes=shapes), lists("cuda", shapes=shapes)
    both = [[a[0], b[1]] for a, b in zip(lists(shapes=shapes), lists("cuda", shapes=shapes))]
    ops.lion_(*here)
    ops.lion_(*there)
    ops.lion_(*both)
    assert same(both, [[a[0], b[1]] for a, b in zip(here, there)])


@pytest.mark.cuda
def test_work_goes_to_the_current_stream():
    """A slow producer on a side stream: a launch on any other stream would read the gradients too early."""
    params, grads, exp_avgs = lists("cuda", shapes=[(1 << 20,)])
    theirs = stepped([[t.cpu() for t in params], [torch.full((1 << 20,), -3.0)], [t.cpu() for t in exp_avgs]], lr=0.5)
    ops.lion_(*lists("cuda", shapes=[(1 << 20,)]))  # compiled before it matters
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        grads[0].fill_(-3.0)
        ops.lion_(params, grads, exp_avgs, lr=0.5)
    side.synchronize()
    assert same([params, exp_avgs], [theirs[0], theirs[2]])


@pytest.mark.cuda
@pytest.mark.parametrize("settings", [{}, dict(cautious=True), dict(rounding="stochastic")])
def test_the_host_never_waits(settings):
    many = lists("cuda", torch.bfloat16, momentum=torch.float32)
    rate = torch.tensor(0.01, device="cuda")
    scale, found = torch.ones((), device="cuda"), torch.zeros((), device="cuda")
    ops.lion_(*many, lr=rate, grad_scale=scale, found_inf=found, **settings)
    torch.cuda.set_sync_debug_mode("error")
    try:
        ops.lion_(*many, lr=rate, grad_scale=scale, found_inf=found, **settings)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.two_gpus
def test_each_tensor_goes_to_its_own_device():
    shapes = [(64,), (8, 8)]
    one = [[tensor.cuda(1) for tensor in of_role] for of_role in lists(shapes=shapes)]
    both = [[t.cuda(k) for k, t in enumerate(of_role)] for of_role in lists(shapes=shapes)]
    with torch.cuda.device(0):
        ops.lion_(*one)
        ops.lion_(*both)
        assert torch.cuda.current_device() == 0
    assert same(both, one)
