# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other implementations of Lion, read into quern.torch.Lion: lion-pytorch, timm, DeepSpeed and
bitsandbytes. Only their dictionaries are read; none of them needs to be installed. Where one of them was told what
quern has no words for, it is refused rather than left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._state import EXP_AVG, MASTER, needed
from .lion import Lion

_NUMBERS = ("lr", "betas", "weight_decay")
_BITSANDBYTES_WRAPPED = "__bnb_optimizer_quant_state__"
_BITSANDBYTES_BLOCK = 256


def _loaded(optimizer: Lion, saved: dict[str, Any], options: Callable, entries: Callable) -> dict[str, Any]:
    """The dictionary that optimizer.load_state_dict takes: the optimizer's own options, with what options(group)
    says of a saved group, and for each saved parameter what entries(state, parameter, label) says."""
    groups = saved["param_groups"]
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(
            f"quern: the checkpoint has {len(groups)} groups and the optimizer {len(optimizer.param_groups)}"
        )
    made: dict[str, Any] = {"state": {}, "param_groups": []}
    for index, (group, mine) in enumerate(zip(groups, optimizer.param_groups)):
        if len(group["params"]) != len(mine["params"]):
            raise ValueError(
                f"quern: group {index} has {len(group['params'])} parameters in the checkpoint and "
                f"{len(mine['params'])} in the optimizer"
            )
        kept = {name: value for name, value in mine.items() if name != "params"}
        made["param_groups"].append({**kept, **options(group), "params": list(group["params"])})
        for k, (key, param) in enumerate(zip(group["params"], mine["params"])):
            if key in saved["state"]:
                made["state"][key] = entries(saved["state"][key], param, f"parameter {k} of group {index}")
    return made


def _numbers(group: dict[str, Any]) -> dict[str, Any]:
    return {name: group[name] for name in _NUMBERS}


def _exp_avg(state: dict[str, Any], param: Tensor, label: str) -> dict[str, Tensor]:
    if EXP_AVG not in state:
        raise ValueError(
            f"quern: the checkpoint has no {EXP_AVG} for {label}; it has {', '.join(map(str, state)) or 'nothing'}"
        )
    return {EXP_AVG: state[EXP_AVG]}


def _lion_pytorch(optimizer: Lion, saved: dict[str, Any]) -> dict[str, Any]:
    """Its decoupled_weight_decay is not in the checkpoint: it is decay="relative" of the optimizer that is loaded."""
    return _loaded(optimizer, saved, _numbers, _exp_avg)


def _timm(optimizer: Lion, saved: dict[str, Any]) -> dict[str, Any]:
    def options(group: dict[str, Any]) -> dict[str, Any]:
        made = {**_numbers(group), "cautious": group["caution"], "maximize": group.get("maximize", False)}
        if group.get("corrected_weight_decay"):
            made["decay"] = "squared"
            if "max_lr_snapshot" in group:  # older versions do not save it
                made["reference_lr"] = group["max_lr_snapshot"]
        return made

    return _loaded(optimizer, saved, options, _exp_avg)


# ---- bitsandbytes ----
def _blockwise(state: dict[str, Any], label: str) -> Tensor:
    """The 8-bit state as f32: a table's value times the largest magnitude of its block of 256."""
    if "absmax1" not in state or "qmap1" not in state:
        raise ValueError(
            f"quern: the 8-bit state of {label} has no absmax1 and qmap1: only blockwise state can be read"
        )
    codes = state["state1"]
    values = state["qmap1"].to(torch.float32).cpu()[codes.reshape(-1).long().cpu()]
    scales = state["absmax1"].to(torch.float32).cpu().repeat_interleave(_BITSANDBYTES_BLOCK)
    if len(scales) < len(values):
        raise ValueError(
            f"quern: the 8-bit state of {label} has {len(values)} values and {state['absmax1'].numel()} blocks of "
            f"{_BITSANDBYTES_BLOCK}"
        )
    return (values * scales[: len(values)]).reshape(codes.shape)


def _state1(state: dict[str, Any], param: Tensor, label: str) -> dict[str, Tensor]:
    state = {**state, **state.get(_BITSANDBYTES_WRAPPED, {})}
    if "state1" not in state or "state2" in state:
        raise ValueError(
            f"quern: the checkpoint of {label} is not bitsandbytes' of Lion: it has {', '.join(map(str, state))}"
        )
    codes = state["state1"]
    return {EXP_AVG: _blockwise(state, label) if codes.dtype == torch.uint8 else codes.reshape(param.shape)}


def _bitsandbytes(optimizer: Lion, saved: dict[str, Any]) -> dict[str, Any]:
    return _loaded(optimizer, saved, _numbers, _state1)


# ---- DeepSpeed without ZeRO ----
def _split(flat: Tensor, params: list[Tensor], what: str) -> list[Tensor]:
    sizes = [param.numel() for param in params]
    if flat.dim() != 1 or flat.numel() != sum(sizes):
        raise ValueError(
            f"quern: {what} has the shape {tuple(flat.shape)} and the group's parameters {sum(sizes)} elements; ZeRO's "
            "partitions must be put together first (zero_to_fp32.py)"
        )
    return [part.reshape(param.shape) for part, param in zip(flat.split(sizes), params)]


def _deepspeed(optimizer: Lion, saved: dict[str, Any]) -> dict[str, Any]:
    """FusedLion or DeepSpeedCPULion by themselves, or within FP16_Optimizer (one flat f32 tensor a group) or
    FP16_UnfusedOptimizer (an f32 tensor a parameter). The f32 originals become the masters of an optimizer that has
    master_weights; any other does without them."""
    inner = saved.get("optimizer_state_dict", saved)
    flat = saved.get("fp32_groups_flat")
    if flat is not None:
        inner = _unflattened(optimizer, inner)
    made = _loaded(optimizer, inner, _numbers, _exp_avg)
    if flat is None and saved.get("fp32_groups") is None:
        return made
    for index, mine in enumerate(optimizer.param_groups):
        masters = (
            saved["fp32_groups"][index]
            if flat is None
            else _split(flat[index].detach(), mine["params"], f"fp32_groups_flat[{index}]")
        )
        for key, param, master in zip(made["param_groups"][index]["params"], mine["params"], masters):
            if MASTER in needed(mine, param):
                made["state"].setdefault(key, {})[MASTER] = master.detach()
    return made


def _unflattened(optimizer: Lion, inner: dict[str, Any]) -> dict[str, Any]:
    """One flat parameter a group becomes the group's parameters, numbered through."""
    made: dict[str, Any] = {"state": {}, "param_groups": []}
    groups = inner["param_groups"]
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(
            f"quern: the checkpoint has {len(groups)} groups and the optimizer {len(optimizer.param_groups)}"
        )
    first = 0
    for index, (group, mine) in enumerate(zip(groups, optimizer.param_groups)):
        keys = list(range(first, first + len(mine["params"])))
        first += len(keys)
        made["param_groups"].append({**group, "params": keys})
        for key in group["params"]:
            state = _exp_avg(inner["state"][key], mine["params"][0], f"group {index}")
            parts = _split(state[EXP_AVG], mine["params"], f"the {EXP_AVG} of group {index}")
            made["state"].update({k: {EXP_AVG: part} for k, part in zip(keys, parts)})
    return made


_SOURCES = {"lion-pytorch": _lion_pytorch, "timm": _timm, "deepspeed": _deepspeed, "bitsandbytes": _bitsandbytes}


def source_of(state_dict: dict[str, Any]) -> str:
    """Whose checkpoint this is, by its keys. ValueError where it is none that is known."""
    if "optimizer_state_dict" in state_dict:
        return "deepspeed"
    if "param_groups" not in state_dict or "state" not in state_dict:
        raise ValueError(f"quern: no optimizer's checkpoint: its keys are {', '.join(map(repr, state_dict))}")
    states = [state for state in state_dict["state"].values() if isinstance(state, dict)]
    if any("state1" in state or _BITSANDBYTES_WRAPPED in state for state in states):
        return "bitsandbytes"
    if any("caution" in group for group in state_dict["param_groups"]):
        return "timm"
    return "lion-pytorch"  # and FusedLion alone: both have exp_avg, lr, betas and weight_decay


def import_state(optimizer: Lion, state_dict: dict[str, Any], source: str = "auto") -> None:
    """Loads another implementation's state_dict() into the optimizer: momenta, lr, betas, weight decay, and where
    present cautious, maximize, the form of decay and f32 masters. Other options stay the optimizer's own.

    source: "lion-pytorch", "timm", "deepspeed", "bitsandbytes", or "auto", which recognises them by their keys

    Raises ValueError, with nothing loaded, where the state is not understood or does not fit the parameters."""
    if source == "auto":
        source = source_of(state_dict)
    if source not in _SOURCES:
        raise ValueError(f"quern: source is {source!r}, it must be 'auto' or one of {', '.join(map(repr, _SOURCES))}")
    optimizer.load_state_dict(_SOURCES[source](optimizer, state_dict))
