# SPDX-License-Identifier: Apache-2.0
"""Weights of learned optimizers from the JAX originals (Google's learned_optimization, l2o) and from PyLO's torch
files to safetensors files under the published names, which quern reads:

    python -m quern.convert_learned_optimizer small_fc theta.npz mulo.safetensors
    python -m quern.convert_learned_optimizer velo theta.npz velo_mlp.safetensors velo_rnn.safetensors

A file of theta as flax writes it (theta.state, params) is read as it is, by the optimizers too:

    python -m quern.convert_learned_optimizer small_fc theta.state mulo.safetensors

theta.npz holds the nested dict `theta` with its keys joined by slashes; where JAX is:

    numpy.savez("theta.npz", **quern.convert_learned_optimizer.flatten(theta))

Pickles are not read, because reading one runs what it says. A linear layer is (in, out) in JAX and (out, in) here."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Mapping
from typing import Any

from . import _lopt_abi, _lopt_weights, _msgpack, _safetensors

_OFFSETS = {"momentum_decays": "m_decays", "rms_decays": "v_decay", "adafactor_decays": "factor_decays"}
_INITIAL = {"m_decays": (0.9, 0.99, 0.999), "v_decay": (0.999,), "factor_decays": (0.9, 0.99, 0.999)}
# The recurrent part's layers, by where haiku puts them.
_RNN = {
    "mix_layer1": "linear",
    "mix_layer2": "linear_1",
    "final_mix_layer": "linear_2",
    "lstm.linear": "rnn/linear",
    "rnn_to_controls": "rnn_to_controls",
    "step_size": "step_size",
}


def flatten(theta: Any, prefix: str = "") -> dict[str, Any]:
    """The arrays of nested dicts, tuples and lists by their keys joined with slashes; of a tuple's, the numbers."""
    import numpy

    if isinstance(theta, Mapping):
        pairs = theta.items()
    elif isinstance(theta, (tuple, list)):
        pairs = enumerate(theta)  # type: ignore[assignment]
    else:
        return {prefix[:-1]: numpy.asarray(theta)}
    made: dict[str, Any] = {}
    for key, value in pairs:
        made.update(flatten(value, f"{prefix}{key}/"))
    return made


def _array(flat: Mapping[str, Any], names: list[str]) -> Any:
    import numpy

    for name in names:
        if name in flat:
            return numpy.asarray(flat[name], numpy.float32)
    raise ValueError(f"theta has no {names[0]!r}; it has {', '.join(sorted(flat)[:20])}")


def _layer(flat: Mapping[str, Any], prefixes: list[str], k: int) -> tuple[Any, Any]:
    """Weight (..., out, in) and bias of a layer whose inputs may be split: w0, or w0__0, w0__1 and so on."""
    import numpy

    weight, bias = None, _array(flat, [f"{prefix}b{k}" for prefix in prefixes])
    for prefix in prefixes:
        if f"{prefix}w{k}" in flat:
            weight = _array(flat, [f"{prefix}w{k}"])
            break
        parts = [name for name in flat if re.fullmatch(re.escape(prefix) + rf"w{k}__\d+", name)]
        if parts:
            parts.sort(key=lambda name: int(name.rpartition("__")[2]))
            weight = numpy.concatenate([_array(flat, [name]) for name in parts], -2)
            break
    if weight is None:
        raise ValueError(f"theta has no '{prefixes[0]}w{k}'; it has {', '.join(sorted(flat)[:20])}")
    return numpy.swapaxes(weight, -1, -2), bias


def _checked(kind: int, made: dict[str, Any]) -> dict[str, Any]:
    """ValueError where a shape is none of the published ones, or an element no number."""
    _lopt_weights.flat(kind, "theta", made)
    return made


def small_fc(theta: Mapping[str, Any]) -> dict[str, Any]:
    """The six published tensors of `theta`, nested or flat. ValueError names what is missing or of another shape."""
    flat = flatten(theta)
    made = {}
    for k, name in enumerate(("input", "linear_0", "output")):
        made[f"network.{name}.weight"], made[f"network.{name}.bias"] = _layer(flat, ["nn/~/", "nn/", "~/", ""], k)
    return _checked(_lopt_abi.SMALL_FC, made)


def decays(theta: Mapping[str, Any]) -> dict[str, Any]:
    """The options m_decays, v_decay and factor_decays that theta's offsets stand for: 1 - (1 - d) e^(10 offset). Those
    that theta has none of are left out."""
    flat = flatten(theta)
    made: dict[str, Any] = {}
    for theirs, ours in _OFFSETS.items():
        if theirs in flat:
            offsets = [float(offset) for offset in flat[theirs].reshape(-1)]
            if len(offsets) != len(_INITIAL[ours]):
                raise ValueError(f"theta has {len(offsets)} {theirs}, there must be {len(_INITIAL[ours])}")
            values = [
                min(max(1 - (1 - d) * math.exp(min(10 * offset, 700.0)), 0.0), 1.0)
                for d, offset in zip(_INITIAL[ours], offsets)
            ]
            made[ours] = values[0] if ours == "v_decay" else tuple(values)
    return made


def velo(theta: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(mlp, rnn) of `theta`, nested or flat, under the published names. ValueError as of small_fc."""
    flat = flatten(theta)
    mlp: dict[str, Any] = {}
    names = [("input_weights_", "input_bias_"), ("hidden_weights_.0", "hidden_bias_.0")]
    for k, (weight, bias) in enumerate([*names, ("output_weights_", "output_bias_")]):
        mlp[weight], mlp[bias] = _layer(flat, ["ff_mod_stack/~/", "ff_mod_stack/"], k)
    rnn = {}
    for name, theirs in _RNN.items():
        at = [f"rnn_params/{theirs}/", f"rnn_params/{theirs.replace('/', '/~/')}/"]
        rnn[f"{name}.weight"] = _array(flat, [f"{prefix}w" for prefix in at]).T
        rnn[f"{name}.bias"] = _array(flat, [f"{prefix}b" for prefix in at])
    for k, word in enumerate(("hidden", "cell")):
        rnn[f"lstm_init_state.{k}"] = _array(flat, [f"lstm_init_state/{k}", f"lstm_init_state/{word}"])
    return _checked(_lopt_abi.VELO_MLP, mlp), _checked(_lopt_abi.VELO_RNN, rnn)


def save(path: str | os.PathLike, weights: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file of float32 arrays. It is there whole or not at all."""
    import numpy

    arrays = {name: numpy.asarray(value, "<f4") for name, value in weights.items()}
    _safetensors.write(path, {name: (value.shape, value.tobytes()) for name, value in arrays.items()}, metadata)


# ---- the command ----
def _read(path: str) -> dict[str, Any]:
    """theta, flat; of one of PyLO's torch files, {"state_dict", "decays"}, what they stand for."""
    import numpy

    if path.endswith(".npz"):
        with numpy.load(path, allow_pickle=False) as file:
            return dict(file)
    if path.endswith((".pt", ".pth")):
        import torch

        return flatten(_numbers(torch.load(path, map_location="cpu", weights_only=True)))
    if _safetensors.foreign(path) == "msgpack":
        return flatten(_msgpack.read(path))
    raise ValueError(
        f"{path}: it must be a .npz file of theta, theta as flax writes it (msgpack), or a .pt file of PyLO's; --help "
        "says how to make one"
    )


def _numbers(value: Any) -> Any:
    """Tensors as arrays."""
    if isinstance(value, Mapping):
        return {key: _numbers(each) for key, each in value.items()}
    return value.detach().numpy() if hasattr(value, "detach") else value


def _small_fc(read: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    if any(name.startswith("state_dict/") for name in read):
        made = {n.partition("/")[2]: value for n, value in read.items() if n.startswith("state_dict/")}
        offsets = {n.partition("/")[2]: value for n, value in read.items() if n.startswith("decays/")}
        return _checked(_lopt_abi.SMALL_FC, made), decays(offsets)
    return small_fc(read), decays(read)


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0; 2 for a mistake in the arguments or a file that is not understood."""
    parser = argparse.ArgumentParser(
        prog="python -m quern.convert_learned_optimizer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=("small_fc", "velo"))
    parser.add_argument(
        "theta", help="flax's msgpack file, such as theta.state, or a .npz file; of small_fc also PyLO's .pt file"
    )
    parser.add_argument("out", nargs="+", help="one safetensors file; of velo two, the network's and the LSTM's")
    words = parser.parse_args(argv)
    if len(words.out) != (2 if words.kind == "velo" else 1):
        parser.error(f"{words.kind} makes {'two files' if words.kind == 'velo' else 'one file'}")
    try:
        read = _read(words.theta)
        if words.kind == "velo":
            for path, weights in zip(words.out, velo(read)):
                save(path, weights)
            return 0
        weights, options = _small_fc(read)
        save(words.out[0], weights, {name: repr(value) for name, value in options.items()})
        for name, value in options.items():
            print(f"{name}={value!r}")
        return 0
    except (ValueError, TypeError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
