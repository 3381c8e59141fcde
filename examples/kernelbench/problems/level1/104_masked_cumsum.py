# SPDX-License-Identifier: Apache-2.0
"""Sums of each row up to each column, over the elements that a mask keeps."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, mask):
        return torch.cumsum(x * mask, dim=1)


def get_inputs():
    return [torch.rand(64, 1000), torch.rand(64, 1000) < 0.5]


def get_domain_inputs():
    return [[torch.rand(rows, columns), torch.rand(rows, columns) < 0.5] for rows, columns in ((1, 1), (3, 33))]
