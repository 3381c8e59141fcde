# SPDX-License-Identifier: Apache-2.0
"""A linear layer, GELU and RMS normalisation."""

import torch
from torch import nn

ROWS, INPUTS, OUTPUTS = 64, 256, 512


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.scale = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        y = nn.functional.gelu(self.linear(x))
        return y * torch.rsqrt(y.square().mean(1, keepdim=True) + 1e-5) * self.scale


def get_inputs():
    return [torch.randn(ROWS, INPUTS)]


def get_init_inputs():
    return [INPUTS, OUTPUTS]
