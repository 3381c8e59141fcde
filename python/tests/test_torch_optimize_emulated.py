# SPDX-License-Identifier: Apache-2.0
"""The plans that a GPU would get, without one: kernels run on the emulator, cut into threadgroups as for a GPU, and
PyTorch's ops on the processor. Catches kernels that do not compile and indices that only a GPU's cut has. What cuDNN
computes is not run."""

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern.kernelbench import _compare  # noqa: E402
from quern.optimize import _convolutions, _program, _recurrent, _search, _verify  # noqa: E402
from quern.optimize._report import Report  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch_optimize_models import MODELS, empty, gru, lstm, sdpa  # noqa: E402

TF32 = 2e-3  # of products whose operands have 11 bits
WHOLE = (sdpa, gru, lstm, empty)  # PyTorch has one op of them, or nothing to do
LIBRARIES = (", convolutions measured", ", ReLU in convolutions")  # cuDNN's


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_a_gpus_plans_are_right(monkeypatch, make):
    model, args = make()
    model.eval()
    with sdpa_kernel(SDPBackend.MATH):  # a processor's own is not a GPU's
        search = _search.Search(model, model, args, {}, Report())
    search.captured.graph.device = "cuda"
    for node in search.captured.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs["device"] = torch.device("cuda")
    literal, cpu = _program._Writer.literal, torch.device("cpu")
    here = lambda self, value: literal(self, cpu if isinstance(value, torch.device) else value)  # noqa: E731
    monkeypatch.setattr(_program._Writer, "literal", here)
    monkeypatch.setattr(_recurrent, "variants", lambda graph: [])  # they ask a GPU how many threads it holds
    reference = _verify.Reference(model, model, args, {})
    exact, tolerance = reference.exact, reference.tolerance
    ran = []
    for alternative in search.alternatives():
        if alternative.plan is None or alternative.name.endswith(LIBRARIES):
            continue
        own = alternative.name.endswith(_convolutions.OWN)
        reference.exact = None if own else exact
        reference.tolerance = _compare.Tolerance("current", TF32) if own else tolerance
        wrong = reference.wrong(search.fast(alternative), 1)
        assert wrong == "", (alternative.name, wrong)
        ran.append("_kernel(" in alternative.program.text)
    assert any(ran) != (make in WHOLE) and not search.report.rejected
