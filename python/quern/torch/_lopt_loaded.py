# SPDX-License-Identifier: Apache-2.0
"""What a learned optimizer refuses to load: state of another class, of other network weights, of other ties, or of
other shapes."""

from __future__ import annotations

from typing import Any

from .. import _lopt, _lopt_weights

# By class, an option that its groups have, and no later one's.
_MARKS = {"Celo2": "rms_mult", "SmallFCLopt": "max_grad_norm", "ELO": "clip_grad", "VeLO": "num_steps"}


def check_loaded(optimizer: Any, state_dict: dict[str, Any]) -> None:
    """The hook: refuses state that does not fit while nothing has been changed yet."""
    family, title, rows = optimizer._family, optimizer._family.title, optimizer._row_shapes
    for group in state_dict["param_groups"]:
        for other, mark in _MARKS.items():
            if other != title and mark in group and mark not in optimizer.defaults:
                raise ValueError(f"{title}: the state that is loaded is one of {other}: its groups have {mark}")
    for group in state_dict["param_groups"]:
        _lopt_weights.check_checksum(title, group.get(_lopt_weights.CHECKSUM), optimizer._checksum)
    for index, (group, own) in enumerate(zip(state_dict["param_groups"], optimizer.param_groups)):
        _lopt.check_ties(title, f"group {index} of the state that is loaded", group.get("ties"), own["ties"])
    saved = [(key, group) for group in state_dict["param_groups"] for key in group["params"]]
    params = [(param, own) for own in optimizer.param_groups for param in own["params"]]
    for (key, group), (param, own) in zip(saved, params) if len(saved) == len(params) else ():
        entries = state_dict["state"].get(key)
        if not entries:
            continue
        shapes = _lopt.state_shapes(family, optimizer._ties_of(own), optimizer._told(param, group))
        for name, shape in {**dict(zip(_lopt.STATE, shapes)), **rows}.items():
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
