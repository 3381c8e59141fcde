# SPDX-License-Identifier: Apache-2.0
"""ViT-B/16 of torchvision, one image"""

import torch
import torchvision


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.vit_b_16().eval()

    def forward(self, images):
        return self.net(images)


def get_inputs():
    return [torch.randn(1, 3, 224, 224)]


def get_init_inputs():
    return []
