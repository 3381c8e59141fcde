# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of PyLO's optimizers (AdafacLO and MuLO, ELO, VeLO; the naive classes and the CUDA ones) from and to
quern.torch's. Only their dictionaries are read and made: PyLO needs not be installed. What is refused changes nothing.

Naive classes keep the decays' axis last and one vector `fac_vec_v` where nothing is factored; CUDA classes keep it
first, with extents of 1 where a mean was taken. VeLO's rows of the LSTM lie in the reverse order of the parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _lopt, _lopt_abi
from ._lopt import Learned
from .velo import VeLO

_LAYOUTS = ("naive", "cuda")
_DECAYS = {
    "initial_momentum_decays": "m_decays",
    "initial_rms_decays": "v_decay",
    "initial_adafactor_decays": "factor_decays",
}
_MEANS, _LEAST, _COUNT = slice(0, 10), slice(10, 20), 20  # of the loss's buffer
_NEVER = 999999999999.0  # PyLO's least value before the first loss


def _all_params(optimizer: Learned) -> list[Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


# ---- one parameter's state ----
def _shaped(value: Any, shape: tuple[int, ...], what: str, decays_last: bool) -> Tensor:
    """Decays first, without the extents of 1 that PyLO keeps. ValueError where that is not the shape."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{what} in the checkpoint is {type(value).__name__}, and not a tensor")
    turned = value.movedim(-1, 0) if decays_last and value.dim() else value
    kept = [extent for extent in turned.shape if extent != 1]
    if turned.numel() != torch.Size(shape).numel() or kept != [extent for extent in shape if extent != 1]:
        raise ValueError(
            f"{what} in the checkpoint has the shape {tuple(value.shape)}, which {shape} does not follow from"
        )
    return turned.detach().to(torch.float32).reshape(shape)


def _decays_last(state: dict[str, Any], param: Tensor) -> bool:
    """Is this state a naive class's? Its mean of squares says so where its means do not."""
    shape = tuple(param.shape)
    for name, n in (("rms", 1), ("mom", 3)):
        found = tuple(state[name].shape) if isinstance(state.get(name), Tensor) else None
        if (found == (*shape, n)) != (found == (n, *shape)):
            return found == (*shape, n)
    return True


def _from_state(optimizer: Learned, state: dict[str, Any], param: Tensor, what: str) -> dict[str, Tensor]:
    shapes = dict(zip(_lopt.STATE, _lopt.state_shapes(optimizer._family.ties, param.shape)))
    factored = param.dim() >= 2
    if "exp_avg" in state:
        names = dict(zip(_lopt.STATE, _lopt.STATE))
        last = False
    elif "mom" in state:
        row, column = ("fac_vec_row", "fac_vec_col") if factored else ("fac_vec_v", "")
        names = dict(zip(_lopt.STATE, ("mom", "rms", row, column)))
        last = _decays_last(state, param)
    else:
        raise ValueError(f"{what} in the checkpoint has neither mom nor exp_avg; it has {', '.join(map(str, state))}")
    made = {}
    for name, shape in shapes.items():
        if name == "exp_avg_sq_c" and not factored:
            made[name] = torch.zeros(0)
            continue
        theirs = names[name]
        if theirs not in state:
            raise ValueError(f"{what} in the checkpoint has no {theirs}")
        made[name] = _shaped(state[theirs], shape, f"the {theirs} of {what}", last)
    return made


def _to_state(optimizer: Learned, param: Tensor, layout: str, step: int) -> dict[str, Any]:
    state = {name: optimizer.state[param][name].detach().clone() for name in _lopt.STATE}
    m, v, row, column = state.values()
    factored, is_velo = param.dim() >= 2, isinstance(optimizer, VeLO)
    if layout == "cuda" and factored:
        d0, d1 = _lopt.factored(optimizer._family.ties, param.shape)
        row, column = row.unsqueeze(d0 + 1), column.unsqueeze(d1 + 1)
    if layout == "cuda" and not is_velo:
        return {
            "step": torch.tensor(float(step), dtype=torch.float64),
            "exp_avg": m,
            "exp_avg_sq": v,
            "exp_avg_sq_r": row,
            "exp_avg_sq_c": column if factored else row.clone(),
        }
    if layout == "naive":
        m, row = m.movedim(0, -1).contiguous(), row.movedim(0, -1).contiguous()
        column = column.movedim(0, -1).contiguous() if factored else column
    empty = torch.zeros(0, device=param.device)
    made = {"mom": m, "rms": v.unsqueeze(-1 if layout == "naive" else 0)}
    made["fac_vec_row"], made["fac_vec_col"], made["fac_vec_v"] = (
        (row, column, empty) if factored else (empty, empty.clone(), row)
    )
    return made


# ---- in ----
def _same(one: Any, other: Any) -> bool:
    return torch.allclose(torch.as_tensor(one).double(), torch.as_tensor(other).double(), rtol=1e-6, atol=1e-6)


def _group(optimizer: Learned, saved: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    """The group's options with what the checkpoint says. Decays that are ours to f32 stay ours."""
    made = {name: value for name, value in mine.items() if name not in ("params", "loss_buffer")}
    for name in ("lr", "weight_decay", "exp_mult", "step_mult", "max_grad_norm"):
        if name in saved and name in mine:
            made[name] = saved[name]
    for theirs, ours in _DECAYS.items():
        if theirs not in saved:
            continue
        given = torch.as_tensor(saved[theirs]).double().flatten().tolist()
        value = given[0] if ours == "v_decay" else tuple(given)
        if not _same(value, mine[ours]):
            made[ours] = value
    made["params"] = list(saved["params"])
    return made


def _steps(states: list[dict[str, Any]], saved: dict[str, Any], index: int) -> int:
    """Of a group: the naive classes count in it, the CUDA ones in each parameter's state."""
    counted = {int(state["step"]) for state in states if "step" in state}
    if len(counted) > 1:
        raise ValueError(
            f"parameters of group {index} have taken {' and '.join(map(str, sorted(counted)))} steps: a group is "
            "stepped together, so give those that differ a group of their own"
        )
    return counted.pop() if counted else int(saved.get("step", 0))


def _imported(optimizer: Learned, saved: dict[str, Any]) -> dict[str, Any]:
    groups, mine = saved["param_groups"], optimizer.param_groups
    if [len(group["params"]) for group in groups] != [len(group["params"]) for group in mine]:
        raise ValueError(
            f"the checkpoint has groups of {[len(group['params']) for group in groups]} parameters and the optimizer "
            f"of {[len(group['params']) for group in mine]}"
        )
    made: dict[str, Any] = {"state": {}, "param_groups": []}
    for index, (group, own) in enumerate(zip(groups, mine)):
        states = [saved["state"][key] for key in group["params"] if saved["state"].get(key)]
        made["param_groups"].append({**_group(optimizer, group, own), "step": _steps(states, group, index)})
        for k, (key, param) in enumerate(zip(group["params"], own["params"])):
            if saved["state"].get(key):
                what = f"parameter {k} of group {index}"
                made["state"][key] = _from_state(optimizer, saved["state"][key], param, what)
    return made


def _import_recurrent(optimizer: VeLO, saved: dict[str, Any], made: dict[str, Any]) -> None:
    """VeLO's rows, which PyLO keeps in the reverse order, its buffer and its number of steps."""
    for name in ("loss_buffer", "lstm_hidden_state", "num_steps"):
        if name not in saved:
            raise ValueError(f"the checkpoint has no {name}: it is not one of PyLO's VeLO")
    keys = [key for group in made["param_groups"] for key in group["params"]]
    trained = [key for key, param in zip(keys, _all_params(optimizer)) if param.requires_grad]
    for name, rows in zip(_lopt.ROWS, saved["lstm_hidden_state"]):
        if tuple(rows.shape) != (len(trained), _lopt_abi.VELO_HIDDEN):
            raise ValueError(
                f"the checkpoint's lstm_hidden_state has the shape {tuple(rows.shape)}, for {len(trained)} parameters "
                f"it must be ({len(trained)}, {_lopt_abi.VELO_HIDDEN})"
            )
        for key, row in zip(trained, rows.detach().to(torch.float32).flip(0)):
            if key in made["state"]:
                made["state"][key][name] = row.clone()
    theirs, buffer = saved["loss_buffer"], torch.zeros(_lopt_abi.VELO_LOSS_BUFFER, dtype=torch.float64)
    if int(theirs["iteration"]):
        buffer[_MEANS], buffer[_LEAST] = theirs["means"].double().cpu(), theirs["running_min"].double().cpu()
        buffer[_COUNT] = int(theirs["iteration"])
    for group in made["param_groups"]:
        group["num_steps"] = int(saved["num_steps"])
    made["param_groups"][0]["loss_buffer"] = buffer


def import_pylo(optimizer: Learned, state_dict: dict[str, Any]) -> None:
    """Loads what state_dict() of PyLO's AdafacLO, ELO or VeLO gave, of the naive classes and of the CUDA ones: state,
    steps taken, lr, weight decay, multipliers, and decays where they are others; of VeLO the LSTM's rows, the loss's
    buffer and num_steps. Other options stay the optimizer's own; runs of PyLO's CUDA code go on as they began with
    pylo_cuda_compat=True. ValueError, with nothing loaded, for what is not understood or does not fit the
    parameters."""
    if "param_groups" not in state_dict or "state" not in state_dict:
        raise ValueError(f"quern: no optimizer's checkpoint: its keys are {', '.join(map(repr, state_dict))}")
    try:
        made = _imported(optimizer, state_dict)
        if isinstance(optimizer, VeLO):
            _import_recurrent(optimizer, state_dict, made)
    except ValueError as error:
        raise ValueError(f"quern: {error}") from None
    optimizer.load_state_dict(made)


# ---- out ----
def _group_out(optimizer: Learned, group: dict[str, Any], keys: list[int], like: dict[str, Any]) -> dict[str, Any]:
    made = dict(like)
    for name in ("lr", "weight_decay", "exp_mult", "step_mult", "max_grad_norm"):
        if name in group:
            made[name] = group[name]
    made["lr"] = made["lr"] / group["width_mult"]  # what MuLO has in its groups
    for theirs, ours in _DECAYS.items():
        made[theirs] = torch.as_tensor(group[ours], dtype=torch.float32).reshape(-1)
    return {**made, "step": int(group["step"]), "params": keys}  # which lies in device memory with capturable


def _recurrent_out(optimizer: VeLO) -> dict[str, Any]:
    trained = [param for param in _all_params(optimizer) if param.requires_grad]
    rows = [torch.stack([optimizer._state_of(param)[name] for param in trained]).flip(0) for name in _lopt.ROWS]
    first = optimizer.param_groups[0]
    device = trained[0].device
    buffer = optimizer._buffer(device)
    count = int(buffer[_COUNT])
    exponents = torch.linspace(1, float(torch.log10(torch.tensor(float(first["num_steps"])))), 10)
    return {
        "loss_buffer": {
            "means": buffer[_MEANS].to(torch.float32),
            "iteration": torch.tensor(count, dtype=torch.int32, device=device),
            "running_min": buffer[_LEAST].to(torch.float32) if count else torch.full((10,), _NEVER, device=device),
            "decays": torch.exp(-1.0 / 10.0**exponents).to(device),
        },
        "lstm_hidden_state": tuple(rows),
        "num_steps": first["num_steps"],
    }


@torch.no_grad()
def export_pylo(optimizer: Learned, layout: str, like: dict[str, Any] | None = None) -> dict[str, Any]:
    """The dictionary that load_state_dict of PyLO's classes takes. layout: "naive" or "cuda". like: what state_dict()
    of such an optimizer over the same parameters gives; its groups' options that quern has no words for are taken from
    there. Tensors are copies."""
    if layout not in _LAYOUTS:
        raise ValueError(f"quern: layout is {layout!r}, it must be one of {', '.join(map(repr, _LAYOUTS))}")
    groups = like["param_groups"] if like else [{} for _ in optimizer.param_groups]
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"quern: like has {len(groups)} groups and the optimizer {len(optimizer.param_groups)}")
    made: dict[str, Any] = {"state": {}, "param_groups": []}
    key = layer = 0
    for group, other in zip(optimizer.param_groups, groups):
        keys = list(range(key, key + len(group["params"])))
        key += len(keys)
        made["param_groups"].append(_group_out(optimizer, group, keys, other))
        for k, param in zip(keys, group["params"]):
            if isinstance(optimizer, VeLO) and param.requires_grad:
                optimizer._state_of(param)  # PyLO's has one from the beginning
            if optimizer.state.get(param):
                made["state"][k] = _to_state(optimizer, param, layout, group["step"])
                if isinstance(optimizer, VeLO):
                    made["state"][k]["layer_idx"] = layer
                    if layout == "cuda":
                        made["state"][k]["rank_onehot"] = _rank(param)
            layer += param.requires_grad
    return {**made, **_recurrent_out(optimizer)} if isinstance(optimizer, VeLO) else made


def _rank(param: Tensor) -> Tensor:
    made = torch.zeros(5, device=param.device)
    made[sum(extent > 1 for extent in param.shape)] = 1
    return made
