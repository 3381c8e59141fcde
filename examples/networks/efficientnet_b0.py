# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-B0 of torchvision, eight images"""

import torch
import torchvision


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.efficientnet_b0().eval()

    def forward(self, images):
        return self.net(images)


def get_inputs():
    return [torch.randn(8, 3, 224, 224)]


def get_init_inputs():
    return []
