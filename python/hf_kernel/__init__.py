# SPDX-License-Identifier: Apache-2.0
"""Lion as a kernel of Hugging Face's `kernels`: one fused pass over a list of parameters, on CPUs and NVIDIA GPUs.

lion_step(p, exp_avg, grad, lr, beta1, beta2, weight_decay, eps) updates p and exp_avg in place; lion_foreach takes
lists in their places; layers.LionOptimizerStep is lion_step as a layer; lion_ is the whole op, with every option; Lion
is the optimizer. tools/hf_kernel.py of quern puts this file, the package quern and its library together."""

from . import layers
from ._ops import lion_, lion_foreach, lion_step
from .layers import LionOptimizerStep
from .quern.torch import Lion

__all__ = ["Lion", "LionOptimizerStep", "layers", "lion_", "lion_foreach", "lion_step"]
