# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of PyLO's optimizers (AdafacLO and MuLO, ELO, VeLO; the naive classes and the CUDA ones) from and to
quern.torch's. Only their dictionaries are read and made: PyLO needs not be installed. What is refused changes nothing.

Naive classes keep the decays' axis last and one vector `fac_vec_v` where nothing is factored; CUDA classes keep it
first, with extents of 1 where a mean was taken. VeLO's rows of the LSTM lie in the reverse order of the parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .. import _lopt
from ._lopt import Learned
from .velo import HIDDEN, LOSS_BUFFER, VeLO

_LAYOUTS = ("naive", "cuda")
_DECAYS = {
    "initial_momentum_decays": "m_decays",
    "initial_rms_decays": "v_decay",
    "initial_adafactor_decays": "factor_decays",
}
# What else the steps of PyLO's classes read in a group, as those classes have it by default.
_READ: dict[str, dict[str, Any]] = {"SmallFCLopt": {}, "ELO": {"clip_grad": False, "clip_norm": 1.0}, "VeLO": {}}
_OF_CUDA = {"eps": None, "clipping_threshold": None, "momentum_dtype": torch.float32, "unscaled_wd": False}
_READ_BY_CUDA = {**_READ, "SmallFCLopt": {**_OF_CUDA, "foreach": False}}
_CLASSES = {"SmallFCLopt": "AdafacLO or MuLO", "ELO": "ELO", "VeLO": "VeLO"}
_MEANS, _LEAST, _COUNT = slice(0, 10), slice(10, 20), 20  # of the loss's buffer
_NEVER = 999999999999.0  # PyLO's least value before the first loss


def _all_params(optimizer: Learned) -> list[Tensor]:
    return [param for group in optimizer.param_groups for param in group["params"]]


# ---- whose checkpoint ----
def _mark_of(saved: dict[str, Any]) -> tuple[str, str] | None:
    """Whose checkpoint it is, and by what that is seen; None where nothing says so."""
    for name in ("lstm_hidden_state", "loss_buffer", "num_steps"):
        if name in saved:
            return "VeLO", f"it has {name}"
    for state in saved["state"].values():
        if "layer_idx" in state or "rank_onehot" in state:
            return "VeLO", "its states have layer_idx"
    marks = {"adam_lr_mult": "CELO2", "clip_norm": "ELO", "max_grad_norm": "SmallFCLopt", "unscaled_wd": "SmallFCLopt"}
    for group in saved["param_groups"]:
        for name, title in marks.items():
            if name in group:
                return title, f"its groups have {name}"
    return None


def _check_whose(optimizer: Learned, saved: dict[str, Any]) -> None:
    title, mark = optimizer._family.title, _mark_of(saved)
    if mark is not None and mark[0] != title:
        raise ValueError(
            f"the checkpoint is one of PyLO's {_CLASSES.get(mark[0], mark[0])} ({mark[1]}), and the optimizer is "
            f"{title}"
        )


def _check_optimizer(optimizer: object) -> None:
    if not isinstance(optimizer, Learned) or optimizer._family.title not in _CLASSES:
        name = type(optimizer).__name__
        raise TypeError(f"quern: the optimizer is {name}, it must be a SmallFCLopt, ELO or VeLO of quern.torch")


def _check_ties(optimizer: Learned) -> None:
    """Its states are of its own ties."""
    for index, group in enumerate(optimizer.param_groups):
        if group["ties"] != "pylo":
            raise ValueError(f"quern: group {index} has ties={group['ties']!r}, and PyLO's states are of ties='pylo'")


def _check_form(saved: object) -> None:
    """Has it what every optimizer's checkpoint has?"""
    if not isinstance(saved, dict):
        raise TypeError(f"quern: the checkpoint is {type(saved).__name__}, it must be the dict that state_dict() gives")
    groups, states = saved.get("param_groups"), saved.get("state")
    if (
        not isinstance(states, dict)
        or not isinstance(groups, (list, tuple))
        or not all(isinstance(group, dict) and "params" in group for group in groups)
    ):
        raise ValueError(
            f"quern: no optimizer's checkpoint: its keys are {', '.join(map(repr, saved))}, and there must be state, a "
            "dict, and param_groups, a list of dicts with params"
        )
    for key, state in states.items():
        if not isinstance(state, dict):
            raise ValueError(f"quern: the state of parameter {key} in the checkpoint is {type(state).__name__}")


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
    shapes = dict(zip(_lopt.STATE, _lopt.state_shapes(optimizer._family, optimizer._family.ties["pylo"], param.shape)))
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
        d0, d1 = _lopt.factored(optimizer._family.ties["pylo"], param.shape)
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
    if "lr" in saved:
        made["lr"] = saved["lr"] * (mine["width_mult"] or 1.0)  # MuLO has divided it in its groups
    for theirs, ours in _DECAYS.items():
        if theirs not in saved:
            continue
        given = torch.as_tensor(saved[theirs]).double().flatten().tolist()
        value = given[0] if ours == "v_decay" else tuple(given)
        if not _same(value, mine[ours]):
            made[ours] = value
    if "clip_grad" in mine and "clip_norm" in saved:
        made["clip_grad"] = float(saved["clip_norm"]) if saved.get("clip_grad") else None
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


def _check_recurrent(saved: dict[str, Any]) -> None:
    """The forms of what PyLO's VeLO has beside the states."""
    buffer, rows, steps = (saved[name] for name in ("loss_buffer", "lstm_hidden_state", "num_steps"))
    if not isinstance(rows, (list, tuple)) or len(rows) != 2 or not all(isinstance(row, Tensor) for row in rows):
        raise ValueError("the checkpoint's lstm_hidden_state must be two tensors, h and c")
    if not isinstance(steps, (int, Tensor)) or isinstance(steps, bool) or int(steps) < 1:
        raise ValueError(f"the checkpoint's num_steps is {steps!r}, it must be a number of steps, 1 or more")
    names = ("means", "iteration", "running_min")
    absent = [name for name in names if name not in buffer] if isinstance(buffer, dict) else list(names)
    if absent:
        said = f"a dict with {', '.join(map(repr, buffer)) or 'nothing'}" if isinstance(buffer, dict) else repr(buffer)
        raise ValueError(f"the checkpoint's loss_buffer is {said[:200]}, it must have {', '.join(absent)}")
    for name in ("means", "running_min"):
        if not isinstance(buffer[name], Tensor) or tuple(buffer[name].shape) != (10,):
            raise ValueError(f"the {name} of the checkpoint's loss_buffer must be a tensor of 10")
    if not isinstance(buffer["iteration"], (int, Tensor)) or int(buffer["iteration"]) < 0:
        raise ValueError(
            f"the iteration of the checkpoint's loss_buffer is {buffer['iteration']!r}, it must be a count"
        )


def _import_recurrent(optimizer: VeLO, saved: dict[str, Any], made: dict[str, Any]) -> None:
    """VeLO's rows, which PyLO keeps in the reverse order, its buffer and its number of steps."""
    for name in ("loss_buffer", "lstm_hidden_state", "num_steps"):
        if name not in saved:
            raise ValueError(f"the checkpoint has no {name}: it is not one of PyLO's VeLO")
    _check_recurrent(saved)
    keys = [key for group in made["param_groups"] for key in group["params"]]
    trained = [key for key, param in zip(keys, _all_params(optimizer)) if param.requires_grad]
    for name, rows in zip(_lopt.ROWS, saved["lstm_hidden_state"]):
        if tuple(rows.shape) != (len(trained), HIDDEN):
            raise ValueError(
                f"the checkpoint's lstm_hidden_state has the shape {tuple(rows.shape)}, for {len(trained)} parameters "
                f"it must be ({len(trained)}, {HIDDEN})"
            )
        for key, row in zip(trained, rows.detach().to(torch.float32).flip(0)):
            if key in made["state"]:
                made["state"][key][name] = row.clone()
    theirs, buffer = saved["loss_buffer"], torch.zeros(LOSS_BUFFER, dtype=torch.float64)
    if int(theirs["iteration"]):
        buffer[_MEANS], buffer[_LEAST] = theirs["means"].double().cpu(), theirs["running_min"].double().cpu()
        buffer[_COUNT] = int(theirs["iteration"])
    for group in made["param_groups"]:
        group["num_steps"] = int(saved["num_steps"])
    made["param_groups"][0]["loss_buffer"] = buffer


def import_pylo(optimizer: Learned, state_dict: dict[str, Any]) -> None:
    """Loads the state_dict() of PyLO's AdafacLO, ELO or VeLO, of the naive classes and of the CUDA ones: state,
    steps taken, lr, weight decay, multipliers, and decays where they are others; of VeLO the LSTM's rows, the loss's
    buffer and num_steps. Other options stay the optimizer's own; runs of PyLO's CUDA code go on as they began with
    pylo_cuda_compat=True. ValueError or TypeError, with nothing loaded, for what is not understood, is another class's
    or does not fit the parameters."""
    _check_optimizer(optimizer)
    _check_ties(optimizer)
    _check_form(state_dict)
    try:
        _check_whose(optimizer, state_dict)
        made = _imported(optimizer, state_dict)
        if isinstance(optimizer, VeLO):
            _import_recurrent(optimizer, state_dict, made)
    except ValueError as error:
        raise ValueError(f"quern: {error}") from None
    optimizer.load_state_dict(made)


# ---- out ----
def _groups_like(optimizer: Learned, like: dict[str, Any] | None) -> list[dict[str, Any]]:
    if like is None:
        return [{} for _ in optimizer.param_groups]
    groups = like.get("param_groups") if isinstance(like, dict) else None
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, dict) for group in groups):
        raise ValueError("quern: like must be the dict that state_dict() of PyLO's class gives, with param_groups")
    return list(groups)


def _group_out(optimizer: Learned, group: dict[str, Any], keys: list[int], like: dict[str, Any]) -> dict[str, Any]:
    made = dict(like)
    for name in ("lr", "weight_decay", "exp_mult", "step_mult", "max_grad_norm"):
        if name in group:
            made[name] = group[name]
    if group["width_mult"] is None and optimizer._fan_in is not None:
        raise ValueError("quern: these weights divide learning rates by inputs, which PyLO does not: set width_mult")
    made["lr"] = made["lr"] / (group["width_mult"] or 1.0)  # what MuLO has in its groups
    if "clip_grad" in group:
        made["clip_grad"] = group["clip_grad"] is not None
        made["clip_norm"] = made["clip_norm"] if group["clip_grad"] is None else group["clip_grad"]
    for theirs, ours in _DECAYS.items():
        made[theirs] = torch.as_tensor(group[ours], dtype=torch.float32).reshape(-1)
    return {**made, "step": int(group["step"]), "params": keys}  # which lies in device memory with capturable


def _recurrent_out(optimizer: VeLO) -> dict[str, Any]:
    trained = [param for param in _all_params(optimizer) if param.requires_grad]
    states = [optimizer._state_of(param, optimizer.param_groups[0]) for param in trained]
    rows = [torch.stack([state[name] for state in states]).flip(0) for name in _lopt.ROWS]
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
    """Returns a dictionary for load_state_dict of PyLO's classes. layout: "naive" or "cuda". like: what state_dict()
    of such an optimizer over the same parameters gives; its groups' options that quern has no words for are taken from
    there. Tensors are copies."""
    _check_optimizer(optimizer)
    _check_ties(optimizer)
    if layout not in _LAYOUTS:
        raise ValueError(f"quern: layout is {layout!r}, it must be one of {', '.join(map(repr, _LAYOUTS))}")
    groups = _groups_like(optimizer, like)
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"quern: like has {len(groups)} groups and the optimizer {len(optimizer.param_groups)}")
    made: dict[str, Any] = {"state": {}, "param_groups": []}
    key = layer = 0
    for group, other in zip(optimizer.param_groups, groups):
        keys = list(range(key, key + len(group["params"])))
        key += len(keys)
        other = {**(_READ_BY_CUDA if layout == "cuda" else _READ)[optimizer._family.title], **other}
        made["param_groups"].append(_group_out(optimizer, group, keys, other))
        for k, param in zip(keys, group["params"]):
            if isinstance(optimizer, VeLO) and param.requires_grad:
                optimizer._state_of(param, group)  # PyLO's has one from the beginning
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
