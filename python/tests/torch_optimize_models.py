# SPDX-License-Identifier: Apache-2.0
"""Modules that the optimizer's tests run: small ones of every kind, each with the arguments of a call."""

import torch
from torch import nn
from torch.nn import functional as F


def of(function, *modules):
    """A module of a function of (its modules..., arguments...)."""

    class Made(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(modules)

        def forward(self, *args):
            return function(*self.parts, *args)

    return Made()


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + 1))


def whole(most, *shape):
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(most))


def mlp():
    return nn.Sequential(nn.Linear(12, 33), nn.GELU(), nn.Linear(33, 7), nn.Softmax(-1)), (randn(5, 12),)


def conv_net():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 5), nn.BatchNorm1d(5),
    )  # fmt: skip
    for module in net.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return net, (randn(2, 3, 17, 15),)


def conv_transposed():
    net = nn.Sequential(nn.ConvTranspose2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.Tanh())
    nn.init.uniform_(net[1].running_var, 0.5, 2)
    nn.init.normal_(net[1].running_mean)
    return net, (randn(2, 3, 5, 6),)


def grouped():
    net = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 1, groups=2), nn.SiLU())
    nn.init.uniform_(net[1].running_var, 0.5, 2)
    return net, (randn(2, 8, 7, 7),)


class Block(nn.Module):
    """Of a transformer."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.register_buffer("mask", torch.tril(torch.ones(64, 64)).bool())

    def forward(self, x):
        batch, n, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5
        scores = scores.masked_fill(~self.mask[:n, :n], float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, n, width))
        return x + self.mlp(self.norm2(x))


def image_of_tokens():
    """A batch of 1, in whose strides fake tensors and real ones differ, so that PyTorch chooses another layout."""
    net = nn.Conv2d(6, 12, 3, stride=2, padding=1, groups=6)
    make = lambda net, x: F.gelu(net(x[:, 1:].transpose(1, 2).reshape(1, 6, 9, 9))).flatten(2).softmax(1)  # noqa: E731
    return of(make, net), (randn(1, 82, 6),)


def attention():
    return Block(), (randn(2, 9, 16),)


def sdpa():
    return of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), (randn(1, 2, 5, 8),) * 3


def gru():
    net = nn.GRU(6, 10, num_layers=2, batch_first=True, bidirectional=True)
    return net, (randn(3, 7, 6), randn(4, 3, 10))


def lstm():
    return of(lambda net, x: net(x)[0][:, -1], nn.LSTM(6, 10, batch_first=True)), (randn(3, 7, 6),)


def losses():
    def all_of(x, y, labels):
        return (
            F.cross_entropy(x, labels), F.mse_loss(x, y), F.smooth_l1_loss(x, y),
            F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
            F.hinge_embedding_loss(x, torch.sign(y)), F.triplet_margin_loss(x, y, x.roll(1, 0)),
            F.cosine_similarity(x, y).mean(),
        )  # fmt: skip

    return of(all_of), (randn(6, 5), randn(6, 4, 5)[:, 0] * 2, whole(5, 6))


def scans():
    def all_of(x):
        mask = x > 0
        before = torch.cat((torch.zeros_like(x.select(1, 0).unsqueeze(1)), x), 1)[:-1].cumsum(1)
        return (
            x.cumsum(1), x.cumprod(0), x.flip(1).cumsum(1).flip(1), (x * mask).cumsum(1), before, x.logcumsumexp(1),
            mask.cumsum(0), x.double().cumsum(0),
        )  # fmt: skip

    return of(all_of), (randn(70, 45),)


def embedding():
    net = of(lambda table, norm, ids: norm(table(ids)).mean(1), nn.Embedding(20, 8, padding_idx=0), nn.LayerNorm(8))
    return net, (whole(20, 3, 5),)


def reductions():
    def all_of(x):
        values, places = x.max(1)
        return (
            x.sum((0, 2)), x.mean(-1, keepdim=True), values, places, x.argmin(2), x.norm(dim=1), x.std(0), x.var(),
            x.logsumexp(1), x.prod(2), x.amax((0, 1)), (x > 0).any(1), x.topk(2, 1).values,
        )  # fmt: skip

    return of(all_of), (randn(3, 4, 5),)


def norms():
    def rms(x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    nets = nn.GroupNorm(2, 8), nn.InstanceNorm1d(8, affine=True), nn.LayerNorm(6)
    return of(lambda a, b, c, x: rms(c(b(a(x)))), *nets), (randn(3, 8, 6),)


def normed_images():
    """GroupNorm's op is for row-major images alone on a GPU."""
    nets = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 3)
    return of(lambda a, b, c, x: F.max_pool2d(torch.relu(c(torch.tanh(b(a(x))))), 2), *nets), (randn(2, 3, 12, 12),)


def activations():
    kinds = (
        F.relu, F.leaky_relu, torch.sigmoid, torch.tanh, F.softmax, F.log_softmax, F.silu, F.gelu, F.selu,
        F.hardsigmoid, F.softplus, F.softsign, F.elu, F.hardtanh, F.mish, F.logsigmoid, F.relu6, F.celu,
    )  # fmt: skip

    def all_of(x):
        return tuple(f(x, dim=1) if "softmax" in f.__name__ else f(x) for f in kinds)

    return of(all_of), (randn(4, 6) * 3,)


def pooling():
    def all_of(x):
        return (
            F.avg_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, 2),
            F.interpolate(x, scale_factor=2),
        )

    return of(all_of), (randn(2, 3, 8, 8),)


def shapes():
    def all_of(x, y):
        both = torch.cat([x, y.transpose(0, 1)], 1)
        padded = F.pad(both, (1, 2, 0, 1), value=3.0)
        return (
            padded,
            both[::2, 1:],
            torch.stack([x, x + 1]),
            both.unfold(1, 2, 1),
            x.expand(2, 3, 4),
            x.t(),
            both.chunk(2, 1),
        )

    return of(all_of), (randn(3, 4), randn(5, 3))


def mixed_types():
    def all_of(x, h, i, flag):
        return (
            x + h, h * i, i // 2, x.double() - h, torch.where(flag, x, h), i.float().mean(), flag & (x > 0), i / 3,
            h.sum(), (x > h).sum(), i.bool(), x.to(torch.bfloat16) + h.to(torch.bfloat16),
        )  # fmt: skip

    x = randn(4, 5)
    return of(all_of), (x, randn(4, 5).half(), whole(9, 4, 5), x > 0.3)


def empty():
    net = of(lambda a, x: (a(x), x.sum(0), torch.cat([x, x]), x.relu() * 2), nn.Linear(4, 3))
    return net, (torch.empty(0, 4),)


def scalars():
    return of(lambda x, y: (x + y, (x * 2).exp(), torch.where(x > 0, x, y))), (torch.tensor(0.5), torch.tensor(-1.5))


def strided():
    return of(lambda x, y: (x + y.t(), (x * 2).sum(0), x[:, 1].contiguous())), (randn(8, 6)[::2, ::2], randn(3, 4))


def dictionary():
    return of(lambda x: {"a": x + 1, "b": [x * 2, None, 3], "c": (x,)}), (randn(3),)


def products():
    def all_of(a, b, c):
        return (
            torch.triu(a @ b),
            a * torch.diag(b)[:, None],
            torch.einsum("ij,kj->ik", a, c),
            torch.tril(a) @ b.T,
            a @ c[0],
        )

    return of(all_of), (randn(6, 6), randn(6, 7)[:, :6], randn(4, 6))


def put_where_it_was(parameter, value):
    """Gives a parameter another tensor and then one of `value`, at the address that the first had, if it is free, with
    as many changes."""
    with torch.inference_mode(False):
        at, others = parameter.data_ptr(), []
        parameter.data = torch.zeros_like(parameter)
        for _ in range(200):
            others.append(torch.full_like(parameter, value))
            if others[-1].data_ptr() == at:
                break
        parameter.data = others[-1]


MODELS = [
    mlp, conv_net, conv_transposed, grouped, image_of_tokens, attention, sdpa, gru, lstm, losses, scans, embedding,
    reductions, norms, normed_images, activations, pooling, shapes, mixed_types, empty, scalars, strided, dictionary,
    products,
]  # fmt: skip
