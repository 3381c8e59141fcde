# SPDX-License-Identifier: Apache-2.0
"""What a learned optimizer refuses to load: state of another class, of other network weights, of other ties, or of
other shapes."""

from __future__ import annotations

from typing import Any

from .. import _lopt, _lopt_weights

# By class, an option that its groups have and no other's.
_MARKS = {"SmallFCLopt": "max_grad_norm", "ELO": "clip_grad", "VeLO": "num_steps"}


def check_loaded(optimizer: Any, state_dict: dict[str, Any]) -> None:
    """The hook: refuses state that does not fit while nothing has been changed yet."""
    title, rows = optimizer._family.title, optimizer._row_shapes
    for group in state_dict["param_groups"]:
        for other, mark in _MARKS.items():
            if other != title and mark in group and _MARKS[title] not in group:
                raise ValueError(f"{title}: the state that is loaded is one of {other}: its groups have {mark}")
    for group in state_dict["param_groups"]:
        _lopt_weights.check_checksum(title, group.get(_lopt_weights.CHECKSUM), optimizer._checksum)
    groups = list(zip(state_dict["param_groups"], optimizer.param_groups))
    for index, (group, own) in enumerate(groups):
        _lopt.check_ties(title, f"group {index} of the state that is loaded", group.get("ties"), own["ties"])
    ties = [optimizer._ties_of(own) for _, own in groups for _ in own["params"]]
    saved = [key for group in state_dict["param_groups"] for key in group["params"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for key, param, of in zip(saved, params, ties) if len(saved) == len(params) else ():
        entries = state_dict["state"].get(key)
        if not entries:
            continue
        for name, shape in {**dict(zip(_lopt.STATE, _lopt.state_shapes(of, param.shape))), **rows}.items():
            if name not in entries:
                raise ValueError(
                    f"{title}: the state that is loaded has no {name} of parameter {key}; PyLO's checkpoints go "
                    "through quern.torch.import_pylo"
                )
            if tuple(entries[name].shape) != shape:
                raise ValueError(
                    f"{title}: parameter {key} has the shape {tuple(param.shape)}, and its {name} in the state that "
                    f"is loaded {tuple(entries[name].shape)} where {shape} is wanted"
                )
