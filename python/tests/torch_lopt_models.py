# SPDX-License-Identifier: Apache-2.0
"""The learned optimizers of quern.torch with the golden vectors' weights, for their tests."""

import lopt_golden
import quern
import torch
import velo_golden
from torch_models import give_grads, parameters


def _tensors(arrays):
    return {name: torch.from_numpy(value) for name, value in arrays.items()}


WEIGHTS = _tensors(lopt_golden.weights())
MLP, RNN = map(_tensors, velo_golden.weights())
SmallFCLopt, ELO, VeLO = quern.torch.SmallFCLopt, quern.torch.ELO, quern.torch.VeLO
KINDS = [SmallFCLopt, ELO]
SHAPES = [(7, 5), (6, 6), (64,), (), (3, 4, 5), (8, 3, 2, 2), (2, 3, 2, 4, 3), (33, 31)]


def doubled(weights):
    return {name: value.double() for name, value in weights.items()}


def share(p, wanted, before):
    return lopt_golden.share_of_tolerance(*(values.detach().numpy() for values in (p, wanted, before)))


def trained(kind=SmallFCLopt, steps=3, **options):
    params = parameters([(20, 3), (40,)], scale=1.0)
    optimizer = kind(params, WEIGHTS, **options)
    for seed in range(steps):
        give_grads(params, seed)
        optimizer.step()
    return params, optimizer
