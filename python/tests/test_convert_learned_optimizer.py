# SPDX-License-Identifier: Apache-2.0
"""The converter of learned optimizers' weights, over made ones that lie as the JAX originals' do: what comes out is
read by the optimizers and is the same. Catches a matrix that is not transposed, parts of a layer in the order of their
names instead of their numbers, a layer that is taken for another."""

import pytest

np = pytest.importorskip("numpy")

import lopt_golden  # noqa: E402
import quern  # noqa: E402
import velo_golden  # noqa: E402
from quern import _lopt, convert_learned_optimizer  # noqa: E402

WEIGHTS = lopt_golden.weights()
MLP, RNN = velo_golden.weights()
OFFSETS = {
    "momentum_decays": np.array([0.15216392, 0.14245212, 0.06812963]),
    "rms_decays": np.array([0.01079706]),
    "adafactor_decays": np.array([0.18621896, -0.10864615, -0.06185547]),
}
SPLIT = [1, 1, 1, 3, 1, 3, 1, 3, 1, 3, 3, 3, 3, 3]  # how VeLO's 30 inputs are parted


def small_fc_theta(split=False):
    layers = {}
    for k, name in enumerate(("input", "linear_0", "output")):
        layers[f"w{k}"], layers[f"b{k}"] = WEIGHTS[f"network.{name}.weight"].T, WEIGHTS[f"network.{name}.bias"]
    if split:
        whole = layers.pop("w0")
        layers.update({f"w0__{k}": part for k, part in enumerate(np.split(whole, np.cumsum([3] * 12)))})
    return {**OFFSETS, "nn": {"~": layers}}


def velo_theta():
    stack, at = {}, np.cumsum(SPLIT)[:-1]
    parts = np.split(MLP["input_weights_"].swapaxes(1, 2), at, 1)
    assert len(parts) == 14 and parts[3].shape == (256, 3, 4)
    stack.update({f"w0__{k}": part for k, part in reversed(list(enumerate(parts)))})
    for k, name in ((1, "hidden_weights_.0"), (2, "output_weights_")):
        stack[f"w{k}"] = MLP[name].swapaxes(1, 2)
    stack.update(b0=MLP["input_bias_"], b1=MLP["hidden_bias_.0"], b2=MLP["output_bias_"])
    places = {"mix_layer1": "linear", "mix_layer2": "linear_1", "final_mix_layer": "linear_2"}
    places.update({"lstm.linear": "rnn/linear", "rnn_to_controls": "rnn_to_controls", "step_size": "step_size"})
    layers = {there: {"w": RNN[f"{ours}.weight"].T, "b": RNN[f"{ours}.bias"]} for ours, there in places.items()}
    return {
        "lstm_init_state": (RNN["lstm_init_state.0"], RNN["lstm_init_state.1"]),
        "rnn_params": layers,
        "ff_mod_stack": {"~": stack},
    }


def same(made, wanted):
    assert set(made) == set(wanted)
    assert all(np.array_equal(made[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("split", [False, True])
def test_small_fc(split):
    same(convert_learned_optimizer.small_fc(small_fc_theta(split)), WEIGHTS)
    made = convert_learned_optimizer.decays(small_fc_theta())
    assert set(made) == {"m_decays", "v_decay", "factor_decays"}
    for name, values in made.items():
        assert values == pytest.approx(_lopt.SMALL_FC.defaults[name], rel=1e-7)


def test_velo():
    mlp, rnn = convert_learned_optimizer.velo(velo_theta())
    same(mlp, MLP)
    same(rnn, RNN)
    theta = velo_theta()
    hidden, cell = theta["lstm_init_state"]
    theta["lstm_init_state"] = {"cell": cell, "hidden": hidden}
    same(convert_learned_optimizer.velo(theta)[1], RNN)


def stepped(optimizer, *loss):
    params = [np.full((3, 4), 0.5, np.float32)]
    optimizer.step(params, [np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)], *loss)
    return params[0]


def test_files_are_what_the_optimizers_read(tmp_path, capsys):
    main, flatten = convert_learned_optimizer.main, convert_learned_optimizer.flatten
    np.savez(tmp_path / "small.npz", **flatten(small_fc_theta()))
    np.savez(tmp_path / "velo.npz", **flatten(velo_theta()))
    paths = [str(tmp_path / name) for name in ("small.safetensors", "mlp.safetensors", "rnn.safetensors")]
    assert main(["small_fc", str(tmp_path / "small.npz"), paths[0]]) == 0
    told = dict(line.split("=") for line in capsys.readouterr().out.splitlines())
    assert set(told) == {"m_decays", "v_decay", "factor_decays"}
    assert main(["velo", str(tmp_path / "velo.npz"), *paths[1:]]) == 0
    one, other = (quern.SmallFCLopt([(3, 4)], weights) for weights in (paths[0], WEIGHTS))
    assert np.array_equal(stepped(one), stepped(other))
    one, other = (quern.VeLO([(3, 4)], *weights, 10) for weights in (paths[1:], (MLP, RNN)))
    assert np.array_equal(stepped(one, 1.0), stepped(other, 1.0))


OPTIONS = ("m_decays", "v_decay", "factor_decays")


def options_of(optimizer):
    return [getattr(optimizer, name) for name in OPTIONS]


def test_a_files_decays_are_those_of_the_optimizer(tmp_path):
    out = str(tmp_path / "small.safetensors")
    theta = small_fc_theta()
    theta["momentum_decays"] = np.array([0.1, 0.05, -0.02], np.float32)
    np.savez(tmp_path / "small.npz", **convert_learned_optimizer.flatten(theta))
    assert convert_learned_optimizer.main(["small_fc", str(tmp_path / "small.npz"), out]) == 0
    said = convert_learned_optimizer.decays(theta)
    published = [_lopt.SMALL_FC.defaults[name] for name in OPTIONS]
    of_file = [said.get(name, value) for name, value in zip(OPTIONS, published)]
    assert of_file != published
    for kind in (quern.SmallFCLopt, quern.ELO):
        assert options_of(kind([(3, 4)], out)) == of_file
        assert options_of(kind([(3, 4)], out, v_decay=0.25)) == [of_file[0], 0.25, of_file[2]]
        plain = kind([(3, 4)], WEIGHTS)
        assert options_of(plain) == [plain._family.defaults[name] for name in OPTIONS]
    assert not np.array_equal(stepped(quern.SmallFCLopt([(3, 4)], out)), stepped(quern.SmallFCLopt([(3, 4)], WEIGHTS)))


@pytest.mark.parametrize("kind", ["SmallFCLopt", "ELO"])
def test_a_files_decays_are_those_of_the_optimizer_in_torch(kind, tmp_path):
    torch = pytest.importorskip("torch")
    out = str(tmp_path / "small.safetensors")
    words = {"m_decays": "(0.5, 0.75, 0.875)", "v_decay": "0.25", "factor_decays": "(0, 0.5, 0.75)", "format": "pt"}
    convert_learned_optimizer.save(out, WEIGHTS, words)
    params = [torch.nn.Parameter(torch.zeros(3, 4)), torch.nn.Parameter(torch.zeros(5))]
    groups = [{"params": params[:1]}, {"params": params[1:], "m_decays": (0.1, 0.2, 0.3)}]
    optimizer = getattr(quern.torch, kind)(groups, out, v_decay=0.125)
    assert [optimizer.param_groups[0][name] for name in OPTIONS] == [(0.5, 0.75, 0.875), 0.125, (0, 0.5, 0.75)]
    assert optimizer.param_groups[1]["m_decays"] == (0.1, 0.2, 0.3)


@pytest.mark.parametrize(
    ("name", "word"),
    [("m_decays", "(0.5, 0.75)"), ("m_decays", "__import__('os')"), ("v_decay", "2.0"), ("factor_decays", "x")],
)
def test_decays_that_a_file_says_wrongly_are_refused(name, word, tmp_path):
    out = str(tmp_path / "small.safetensors")
    convert_learned_optimizer.save(out, WEIGHTS, {name: word})
    with pytest.raises(ValueError, match=f"SmallFCLopt: weights: .*small.safetensors says that {name} is"):
        quern.SmallFCLopt([(3, 4)], out)


def test_pylos_torch_file(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(value) for name, value in WEIGHTS.items()}
    offsets = {name: torch.from_numpy(value) for name, value in OFFSETS.items()}
    torch.save({"state_dict": tensors, "decays": offsets}, tmp_path / "weights.pt")
    out = str(tmp_path / "out.safetensors")
    assert convert_learned_optimizer.main(["small_fc", str(tmp_path / "weights.pt"), out]) == 0
    assert "m_decays=(0.542" in capsys.readouterr().out
    one, other = (quern.SmallFCLopt([(3, 4)], weights) for weights in (out, WEIGHTS))
    assert np.array_equal(stepped(one), stepped(other))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda t: t["nn"]["~"].pop("w1"), "theta has no 'nn/~/w1'; it has"),
        (lambda t: t["nn"]["~"].pop("b2"), "theta has no 'nn/~/b2'"),
        (
            lambda t: t["nn"]["~"].update(w1=np.zeros((32, 31))),
            r"linear_0\.weight'\] has the shape \(31, 32\), it must",
        ),
        (lambda t: t["nn"]["~"].update(b0=np.full(32, np.nan)), "is nan"),
    ],
)
def test_wrong_ones_are_named(spoil, sentence):
    theta = small_fc_theta()
    spoil(theta)
    with pytest.raises(ValueError, match=sentence):
        convert_learned_optimizer.small_fc(theta)


def test_mistakes(tmp_path, capsys):
    main = convert_learned_optimizer.main
    assert main(["small_fc", str(tmp_path / "theta.pickle"), "out"]) == 2
    assert "it must be a .npz file" in capsys.readouterr().err
    assert main(["small_fc", str(tmp_path / "nothing.npz"), "out"]) == 2
    np.savez(tmp_path / "theta.npz", **{"nn/~/w0": np.array([{1: 2}], dtype=object)})
    assert main(["small_fc", str(tmp_path / "theta.npz"), str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        main(["velo", "theta.npz", "one"])
