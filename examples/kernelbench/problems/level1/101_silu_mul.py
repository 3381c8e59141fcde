# SPDX-License-Identifier: Apache-2.0
"""A gated activation: silu(gate) * up, as the feed-forward layers of language models have it."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, gate, up):
        return nn.functional.silu(gate) * up


def get_inputs():
    return [torch.randn(2048, 11008), torch.randn(2048, 11008)]
