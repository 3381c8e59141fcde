# SPDX-License-Identifier: Apache-2.0
"""Run by `kernels benchmark`: it times benchmark_*, compares `self.out` with what verify_* returns, and times the
last call of verify_* as the reference.

Its comparison allows 0.01, which is more than Lion moves a parameter in many steps: a kernel that does nothing would
pass. So what is compared is counted in steps: (p - p0) / lr after several steps over gradients that change, where every
element has moved by a whole number of steps or the kernel is wrong; and the momentum, in units of what a gradient adds
to it; and the step that was timed. It is held against float64, once. Elements are left out only where float32 cannot
tell the sign, and their number is bounded. The reference that is timed is one step as torch._foreach_* makes it."""

import torch
from kernels.benchmark import Benchmark

LR, BETA1, BETA2, DECAY = 1e-3, 0.9, 0.99, 0.1
STEPS = 4
UNDECIDED = 1e-6  # where |c| is this much less than its terms, float32 need not find its sign


class _Steps:
    """Lists of `shapes`, and what is said of them; a subclass has step(p, m, grads), which updates the first two. It is
    no Benchmark itself, or the runner would run it."""

    seed = 42
    shapes: "list[tuple[int, ...]]" = []

    def setup(self):
        if self.device == "cuda" and not torch.cuda.is_available():
            self.device = "cpu"  # a PyTorch that was built for CUDA, on a machine without a GPU

        def lists(scale):
            return [torch.randn(shape, device=self.device) * scale for shape in self.shapes]

        self.p, self.m = lists(0.02), lists(0.1)
        self.grads = [lists(1.0) for _ in range(STEPS)]
        for grads in self.grads:
            grads[0].view(-1)[:7] = 0.0  # and with a momentum of zero: sign(0) is 0, nothing may move
        self.m[0].view(-1)[:7] = 0.0
        self.expected = None
        self.before = [t.clone() for t in self.p], [t.clone() for t in self.m]

    def benchmark_step(self):
        self.step(self.p, self.m, self.grads[0])

    def verify_step(self):
        if self.expected is None:
            self.expected = self._check()
            self.eager = [self._copy(of_role) for of_role in (*self.before, self.grads[0])]
        self._eager_step(*self.eager)
        return self.expected

    @staticmethod
    def _eager_step(p, m, grads):
        """The step without a fused kernel: seven passes."""
        u = torch._foreach_mul(m, BETA1)
        torch._foreach_add_(u, grads, alpha=1 - BETA1)
        torch._foreach_sign_(u)
        torch._foreach_mul_(p, 1 - LR * DECAY)
        torch._foreach_add_(p, u, alpha=-LR)
        torch._foreach_mul_(m, BETA2)
        torch._foreach_add_(m, grads, alpha=1 - BETA2)

    def _check(self):
        """Sets `self.out` to what the kernel did, and returns what it should have done."""
        seen_p, seen_m = [self._copy(self.p)], [self._copy(self.m)]  # the step that benchmark_step took
        p, m = (self._copy(of_role) for of_role in self.before)
        for grads in self.grads:
            self.step(p, m, grads)
            seen_p.append(self._copy(p))
            seen_m.append(self._copy(m))
        want_p, want_m, undecided = self._oracle()
        want_p, want_m = [want_p[0], *want_p], [want_m[0], *want_m]
        undecided = [undecided[0], *undecided]
        out, expected, left_out = [], [], 0
        for k, numbers in enumerate(zip(seen_p, want_p, undecided)):
            for start, got, want, unsure in zip(self.before[0], *numbers):
                steps, wanted = (got.double() - start) / LR, (want - start) / LR
                out.append(torch.where(unsure, wanted, steps).flatten())
                expected.append(wanted.flatten())
                left_out += int(unsure.sum())
            for got, want in zip(seen_m[k], want_m[k]):
                out.append((got.double() / (1 - BETA2)).flatten())
                expected.append((want / (1 - BETA2)).flatten())
        self.out = torch.cat(out)
        if left_out > 5e-6 * self.out.numel() + 3:
            raise RuntimeError(f"{left_out} of {self.out.numel()} signs are undecided, which the data do not explain")
        return torch.cat(expected)

    @staticmethod
    def _copy(tensors):
        return [tensor.clone() for tensor in tensors]

    def _oracle(self):
        """After each step: parameters and momenta in float64, and where a sign was undecided up to then."""
        keep = 1 - LR * DECAY
        p, m = ([t.double() for t in of_role] for of_role in self.before)
        unsure = [torch.zeros_like(t, dtype=torch.bool) for t in p]
        after = []
        for grads in self.grads:
            for k, g in enumerate(t.double() for t in grads):
                c = BETA1 * m[k] + (1 - BETA1) * g
                terms = BETA1 * m[k].abs() + (1 - BETA1) * g.abs()
                unsure[k] = unsure[k] | ((c.abs() < UNDECIDED * terms) & (terms > 0))
                p[k] = p[k] * keep - LR * c.sign()
                m[k] = BETA2 * m[k] + (1 - BETA2) * g
            after.append((list(p), list(m), list(unsure)))
        return tuple(zip(*after))


class LionStep(_Steps, Benchmark):
    """One tensor at a time."""

    shapes = [(1 << 20,)]

    def step(self, p, m, grads):
        for tensors in zip(p, m, grads):
            self.kernel.lion_step(*tensors, LR, BETA1, BETA2, DECAY, 0.0)


class LionForeach(_Steps, Benchmark):
    """A list in one call: a small transformer's shapes."""

    shapes = [(512, 128)] + [(128, 384), (384,), (128, 128), (128, 512), (512,), (512, 128), (128,)] * 6

    def step(self, p, m, grads):
        self.kernel.lion_foreach(p, m, grads, LR, BETA1, BETA2, DECAY, 0.0)


class LionLayer(_Steps, Benchmark):
    """The layer."""

    shapes = [(1 << 16,), (1000, 3)]

    def step(self, p, m, grads):
        layer = self.kernel.LionOptimizerStep()
        for tensors in zip(p, m, grads):
            layer(*tensors, LR, BETA1, BETA2, DECAY, 0.0)
