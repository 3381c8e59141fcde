# SPDX-License-Identifier: Apache-2.0
"""Softmax of each row."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [3 * torch.randn(64, 1000)]


def get_domain_inputs():
    return [[torch.randn(rows, columns)] for rows, columns in ((1, 1), (3, 31), (5, 129))]
