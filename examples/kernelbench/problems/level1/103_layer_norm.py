# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation over the last dimension, with a scale and a shift."""

import torch
from torch import nn

COLUMNS = 768


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.norm.bias)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(4, 16, COLUMNS) + 2]


def get_init_inputs():
    return [COLUMNS]
