# SPDX-License-Identifier: Apache-2.0
"""GPT-2 of Transformers, the logits of 128 tokens"""

import torch
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = transformers.GPT2Config()
        self.net = transformers.GPT2LMHeadModel(config).eval()

    def forward(self, tokens):
        return self.net(tokens, use_cache=False).logits


def get_inputs():
    tokens = torch.randint(1000, 20000, (1, 128))
    return [tokens]


def get_init_inputs():
    return []
