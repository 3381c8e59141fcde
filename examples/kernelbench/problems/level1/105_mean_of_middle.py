# SPDX-License-Identifier: Apache-2.0
"""The mean over the middle one of three dimensions."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.mean(dim=1)


def get_inputs():
    return [torch.randn(16, 64, 256) + 1]


def get_domain_inputs():
    return [[torch.randn(a, b, c)] for a, b, c in ((1, 1, 1), (3, 7, 33))]
