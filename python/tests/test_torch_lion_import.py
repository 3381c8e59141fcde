# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other implementations in quern.torch.Lion: dictionaries in their layouts, and, where the package
is here, what the real one saves, after which both train on alike."""

import copy

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
from torch_models import give_grads, parameters  # noqa: E402
from torch_oracle import same_bits  # noqa: E402

Lion, import_state = quern.torch.Lion, quern.torch.import_state
SHAPES = [(20, 3), (5000,), ()]
NUMBERS = dict(lr=3e-3, betas=(0.8, 0.9), weight_decay=0.2)


def near(params, others, lr, steps=1):
    """Both moved by lr a step and nowhere further apart than a flipped sign takes them; hardly anywhere that far."""
    for p, q in zip(params, others):
        apart = (p.detach() - q.detach()).abs()
        assert apart.max() <= 2.001 * lr * steps
        assert (apart > 1e-6).float().mean() <= 1e-3


def go_on_alike(theirs, optimizer, others, mine, steps=3):
    for seed in range(20, 20 + steps):
        give_grads(theirs, seed)
        give_grads(others, seed)
        optimizer.step()
        mine.step()
    near(theirs, others, mine.param_groups[0]["lr"], steps)


def trained(make):
    params = parameters(SHAPES, scale=1.0)
    optimizer = make(params)
    for seed in range(4):
        give_grads(params, seed)
        optimizer.step()
    return params, optimizer


def read(params, optimizer, **options):
    others = [torch.nn.Parameter(p.detach().clone()) for p in params]
    mine = Lion(others, **options)
    import_state(mine, copy.deepcopy(optimizer.state_dict()))
    for name in NUMBERS:
        assert mine.param_groups[0][name] == optimizer.param_groups[0][name]
    return others, mine


def test_what_lion_pytorch_saves():
    lion_pytorch = pytest.importorskip("lion_pytorch")
    params, optimizer = trained(lambda params: lion_pytorch.Lion(params, **NUMBERS))
    others, mine = read(params, optimizer)
    assert all(same_bits(mine.state[q]["exp_avg"], optimizer.state[p]["exp_avg"]) for p, q in zip(params, others))
    go_on_alike(params, optimizer, others, mine)


@pytest.mark.parametrize("options", [{}, dict(caution=True), dict(corrected_weight_decay=True), dict(maximize=True)])
def test_what_timm_saves(options):
    timm_lion = pytest.importorskip("timm.optim.lion")
    params, optimizer = trained(lambda params: timm_lion.Lion(params, foreach=False, **NUMBERS, **options))
    optimizer.param_groups[0]["lr"] = 1e-3
    others, mine = read(params, optimizer)
    group = mine.param_groups[0]
    assert group["cautious"] == options.get("caution", False) and group["maximize"] == options.get("maximize", False)
    if "corrected_weight_decay" in options:
        assert group["decay"] == "squared" and group["reference_lr"] == 3e-3
    if options.get("caution"):  # the scale of the step is a mean in f32 there: every element differs a little
        give_grads(params, 50)
        give_grads(others, 50)
        optimizer.step()
        mine.step()
        assert all(torch.allclose(p, q, rtol=0, atol=1e-6) for p, q in zip(params, others))
    else:
        go_on_alike(params, optimizer, others, mine)


@pytest.mark.parametrize("bits", [32, 8])
def test_what_bitsandbytes_saves(bits):
    bnb = pytest.importorskip("bitsandbytes")
    kind = bnb.optim.Lion32bit if bits == 32 else bnb.optim.Lion8bit
    params = parameters(SHAPES, scale=1.0)
    optimizer = kind(params, **NUMBERS)
    for k, p in enumerate(params):
        optimizer.init_state(optimizer.param_groups[0], p, 0, k)
    wanted = []
    for p in params:  # the state as its own functions quantize it
        m = torch.randn(p.shape)
        state = optimizer.state[p]
        if state["state1"].dtype == torch.uint8:
            codes, quantized = bnb.functional.quantize_blockwise(m, code=state["qmap1"], blocksize=256)
            state["state1"], state["absmax1"] = codes.reshape(p.shape), quantized.absmax
            wanted.append(bnb.functional.dequantize_blockwise(codes, quantized).reshape(p.shape))
        else:
            state["state1"] = m
            wanted.append(m)
    assert any(s["state1"].dtype == torch.uint8 for s in optimizer.state.values()) == (bits == 8)
    others, mine = read(params, optimizer)
    for q, m in zip(others, wanted):
        assert torch.equal(mine.state[q]["exp_avg"], m)


def test_bitsandbytes_layout_without_the_package():
    params = parameters([(600,), (2, 3)])
    table = torch.linspace(-1, 1, 256)
    codes, absmax = torch.randint(0, 256, (600,), dtype=torch.uint8), torch.tensor([1.0, 2.0, 0.5])
    plain = torch.randn(2, 3)
    states = {0: dict(step=4, state1=codes, qmap1=table, absmax1=absmax), 1: dict(step=4, state1=plain)}
    for wrapped in (False, True):
        said = {
            k: {"step": 4, "__bnb_optimizer_quant_state__": {n: v for n, v in s.items() if n != "step"}}
            if wrapped
            else s
            for k, s in states.items()
        }
        optimizer = Lion(params)
        import_state(optimizer, {"state": said, "param_groups": [{**NUMBERS, "eps": 1e-8, "params": [0, 1]}]})
        scale = torch.cat([absmax[0].expand(256), absmax[1].expand(256), absmax[2].expand(88)])
        assert torch.equal(optimizer.state[params[0]]["exp_avg"], table[codes.long()] * scale)
        assert torch.equal(optimizer.state[params[1]]["exp_avg"], plain)


def deepspeed(flat):
    """The state that FP16_Optimizer and FP16_UnfusedOptimizer save around FusedLion, with two groups."""
    shapes = [[(4, 3), (7,)], [(5, 2)]]
    torch.manual_seed(0)
    momenta = [[torch.randn(shape) for shape in group] for group in shapes]
    masters = [[torch.randn(shape) for shape in group] for group in shapes]
    inner = {"state": {}, "param_groups": []}
    saved = {"optimizer_state_dict": inner, "cur_scale": 1024.0, "cur_iter": 9, "clip_grad": 0.0}
    key = 0
    for group in momenta:
        values = [torch.cat([m.flatten() for m in group])] if flat else group
        keys = list(range(key, key + len(values)))
        key += len(values)
        inner["param_groups"].append({**NUMBERS, "params": keys, "step": 9})
        inner["state"].update({k: {"exp_avg": value, "step": 9} for k, value in zip(keys, values)})
    if flat:
        saved["fp32_groups_flat"] = [torch.cat([w.flatten() for w in group]).requires_grad_() for group in masters]
    else:
        saved["fp32_groups"] = masters
    groups = [[torch.nn.Parameter(w.to(torch.bfloat16)) for w in group] for group in masters]
    return groups, momenta, masters, saved


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("master_weights", [True, False])
def test_deepspeed_layouts(flat, master_weights):
    groups, momenta, masters, saved = deepspeed(flat)
    optimizer = Lion([dict(params=group) for group in groups], master_weights=master_weights)
    import_state(optimizer, saved)
    for group, ms, ws in zip(groups, momenta, masters):
        for p, m, w in zip(group, ms, ws):
            state = optimizer.state[p]
            assert torch.equal(state["exp_avg"], m) and state["exp_avg"].dtype == torch.float32
            assert ("master" in state) == master_weights
            assert not master_weights or (torch.equal(state["master"], w) and not state["master"].requires_grad)
    assert all(group["lr"] == 3e-3 and group["betas"] == (0.8, 0.9) for group in optimizer.param_groups)
    give_grads([p for group in groups for p in group], 0)
    optimizer.step()


def test_what_deepspeeds_own_optimizer_saves():
    deepspeed_lion = pytest.importorskip("deepspeed.ops.lion")
    params = parameters([(4,)])
    optimizer = deepspeed_lion.FusedLion(params, **NUMBERS)
    optimizer.state[params[0]] = {"step": 1, "exp_avg": torch.randn(4)}
    others, mine = read(params, optimizer)
    assert torch.equal(mine.state[others[0]]["exp_avg"], optimizer.state[params[0]]["exp_avg"])


@pytest.mark.parametrize(
    ("saved", "source", "sentence"),
    [
        ({"model": 1}, "auto", "no optimizer's checkpoint"),
        ({"state": {}, "param_groups": []}, "auto", "0 groups and the optimizer 1"),
        ({"state": {}, "param_groups": [{**NUMBERS, "params": [0]}]}, "auto", "1 parameters in the checkpoint and 2"),
        (
            {"state": {0: {"mu": 1}}, "param_groups": [{**NUMBERS, "params": [0, 1]}]},
            "auto",
            "no exp_avg for parameter 0",
        ),
        ({"state": {}, "param_groups": []}, "apex", "source is 'apex'"),
        (
            {
                "state": {0: dict(state1=torch.zeros(3), state2=torch.zeros(3))},
                "param_groups": [{**NUMBERS, "params": [0, 1]}],
            },
            "auto",
            "not bitsandbytes' of Lion",
        ),
        (
            {
                "state": {0: dict(state1=torch.zeros(3, dtype=torch.uint8), max1=1)},
                "param_groups": [{**NUMBERS, "params": [0, 1]}],
            },
            "auto",
            "only blockwise",
        ),
        (
            {
                "optimizer_state_dict": {
                    "state": {0: dict(exp_avg=torch.zeros(5))},
                    "param_groups": [{**NUMBERS, "params": [0]}],
                },
                "fp32_groups_flat": [torch.zeros(5)],
            },
            "auto",
            "ZeRO",
        ),
    ],
)
def test_what_is_not_understood_is_refused_and_nothing_is_loaded(saved, source, sentence):
    optimizer = Lion(parameters([(3,), (4,)]), lr=0.25)
    with pytest.raises(ValueError, match=sentence):
        import_state(optimizer, saved, source)
    assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.25
