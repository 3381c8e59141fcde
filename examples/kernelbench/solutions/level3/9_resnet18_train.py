# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 in both modes: images and filters in channels_last; the addition and ReLU behind it in one pass, also
backwards; in evaluation the normalisation in the weights before it; on a GPU, without gradients, one CUDA graph."""

import quern.torch
import torch
from torch import nn

LAST = torch.channels_last

add_relu_forward = quern.metal_kernel(
    "add_relu",
    ["a", "b"],
    ["out"],
    """
    uint i = thread_position_in_grid.x;
    float sum = a[i] + b[i];
    out[i] = sum < 0 ? 0 : sum; // NaN stays
    """,
)
add_relu_backward = quern.metal_kernel(
    "add_relu_backward",
    ["out", "cotangent"],
    ["gradient"],
    "uint i = thread_position_in_grid.x; gradient[i] = out[i] > 0 ? cotangent[i] : 0;",
)


def each(kernel, *images):
    """A kernel over elements of images in channels_last, whose memory is row-major in another order."""
    rows = [image.contiguous(memory_format=LAST).permute(0, 2, 3, 1) for image in images]
    (out,) = kernel(
        inputs=rows, grid=(rows[0].numel(), 1, 1), output_shapes=[rows[0].shape], output_dtypes=[torch.float32]
    )
    return out.permute(0, 3, 1, 2)


@quern.function
def add_relu(a, b):
    return each(add_relu_forward, a, b)


@add_relu.vjp
def add_relu_vjp(inputs, cotangent, out):
    gradient = each(add_relu_backward, out, cotangent)
    return gradient, gradient.clone()


def shape_of_sum(a, b):
    return [a.shape]


add_relu = quern.torch.register("examples::add_relu", add_relu, output_shapes=shape_of_sum)


class Normed(nn.Module):
    """A convolution with a BatchNorm behind it."""

    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.seen = self.folded = None

    def fold(self):
        """Puts the kept statistics into weights and bias, if one of the tensors is new. True: it was."""
        norm = self.norm
        tensors = [self.conv.weight, *norm.parameters(), *norm.buffers()]  # the count tells of new statistics
        now = [(t.data_ptr(), t._version, torch.is_inference_mode_enabled()) for t in tensors]
        if now == self.seen:
            return False
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        weight = (self.conv.weight * scale[:, None, None, None]).contiguous(memory_format=LAST)
        self.seen, self.folded = now, (weight, norm.bias - norm.running_mean * scale)
        return True

    def forward(self, x):
        if self.training or torch.is_grad_enabled():
            return self.norm(self.conv(x))
        return nn.functional.conv2d(x, *self.folded, self.conv.stride, self.conv.padding)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = Normed(inputs, outputs, 3, stride)
        self.second = Normed(outputs, outputs, 3)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else Normed(inputs, outputs, 1, stride)

    def forward(self, x):
        return add_relu(self.second(torch.relu(self.first(x))), self.shortcut(x))


class ModelNew(nn.Module):
    def __init__(self, classes, training):
        super().__init__()
        self.stem = Normed(3, 64, 7, 2)
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.blocks = nn.Sequential(*(Block(*at) for a, b, s in widths for at in ((a, b, s), (b, b, 1))))
        self.linear = nn.Linear(512, classes)
        self.graphs = {}
        self.to(memory_format=LAST).train(training)

    def forward(self, x):
        gradients = torch.is_grad_enabled()
        folds = not self.training and not gradients
        if folds and sum(module.fold() for module in self.modules() if isinstance(module, Normed)):
            self.graphs.clear()
        if gradients or not x.is_cuda or torch.cuda.is_current_stream_capturing():
            return self.layers(x)
        return self.replay(x)

    def layers(self, x):
        y = torch.relu(self.stem(x.contiguous(memory_format=LAST)))
        y = self.blocks(nn.functional.max_pool2d(y, 3, 2, 1))
        return self.linear(y.mean((2, 3)))

    def replay(self, x):
        """The layers as one launch; a graph for each kind of call."""
        kind = x.shape, x.dtype, x.device, self.training, torch.is_inference_mode_enabled()
        if kind not in self.graphs:
            self.graphs[kind] = self.capture(x)
        graph, image, result = self.graphs[kind]
        image.copy_(x)
        graph.replay()
        return result.clone()

    def capture(self, x):
        image, graph = x.clone(memory_format=LAST), torch.cuda.CUDAGraph()
        kept = [buffer.clone() for buffer in self.buffers()]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # libraries choose their kernels outside of a graph
                self.layers(image)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            result = self.layers(image)
        for buffer, value in zip(self.buffers(), kept):
            buffer.copy_(value)  # only calls of the caller's move the statistics
        return graph, image, result

    def _apply(self, *args, **kwargs):
        self.graphs.clear()  # they hold addresses
        return super()._apply(*args, **kwargs)
