# SPDX-License-Identifier: Apache-2.0
"""BERT-base of Transformers, 128 tokens of which 8 are padding"""

import torch
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = transformers.BertConfig()
        self.net = transformers.BertModel(config).eval()

    def forward(self, tokens, mask):
        return self.net(tokens, attention_mask=mask).last_hidden_state


def get_inputs():
    tokens = torch.randint(1000, 20000, (1, 128))
    return [tokens, (torch.arange(128) < 120).long()[None]]


def get_init_inputs():
    return []
