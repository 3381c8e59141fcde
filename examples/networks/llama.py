# SPDX-License-Identifier: Apache-2.0
"""A Llama of 0.2 billion parameters of Transformers, the logits of 64 tokens"""

import torch
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        sizes = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16)
        config = transformers.LlamaConfig(**sizes)
        self.net = transformers.LlamaForCausalLM(config).eval()

    def forward(self, tokens):
        return self.net(tokens, use_cache=False).logits


def get_inputs():
    tokens = torch.randint(1000, 20000, (1, 64))
    return [tokens]


def get_init_inputs():
    return []
