# SPDX-License-Identifier: Apache-2.0
"""A convolution, a bias for each channel, hardswish, and a scale for each channel."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, inputs, outputs, kernel):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, bias=False)
        self.bias = nn.Parameter(torch.randn(outputs, 1, 1))
        self.scale = nn.Parameter(torch.randn(outputs, 1, 1))

    def forward(self, x):
        return nn.functional.hardswish(self.conv(x) + self.bias) * self.scale


def get_inputs():
    return [torch.randn(4, 8, 64, 64)]


def get_init_inputs():
    return [8, 16, 3]
