# SPDX-License-Identifier: Apache-2.0
"""Level 2, problem 94, in its small size: a linear layer, a bias, hardtanh, mish and group normalisation."""

import torch
from torch import nn

ROWS, INPUTS, OUTPUTS, GROUPS = 128, 512, 1024, 32


class Model(nn.Module):
    def __init__(self, inputs, outputs, groups):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.bias = nn.Parameter(torch.randn(outputs))
        self.norm = nn.GroupNorm(groups, outputs)

    def forward(self, x):
        y = nn.functional.mish(nn.functional.hardtanh(self.linear(x) + self.bias))
        return self.norm(y)


def get_inputs():
    return [torch.randn(ROWS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS, GROUPS]
