# SPDX-License-Identifier: Apache-2.0
"""Level 3, problem 9: ResNet-18 in training mode, whose normalisations use and keep the statistics of the batch."""

import torch
from torch import nn

CLASSES, TRAINING = 1000, True


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False)).append(nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Model(nn.Module):
    def __init__(self, classes, training):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.blocks = nn.Sequential(*(Block(*at) for a, b, s in widths for at in ((a, b, s), (b, b, 1))))
        self.linear = nn.Linear(512, classes)
        self.train(training)

    def forward(self, x):
        y = self.blocks(self.pool(torch.relu(self.norm(self.conv(x)))))
        return self.linear(y.mean((2, 3)))


def get_inputs():
    return [torch.randn(2, 3, 96, 96)]


def get_init_inputs():
    return [CLASSES, TRAINING]
