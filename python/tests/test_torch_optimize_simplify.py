# SPDX-License-Identifier: Apache-2.0
"""What a captured graph loses before it is planned: views that change nothing, batches of products with one matrix;
and what a program makes once."""

import pytest

torch = pytest.importorskip("torch")
if not hasattr(torch.export, "default_decompositions"):
    pytest.skip("before torch 2.6 models cannot be captured", allow_module_level=True)

from quern.optimize import _search, _simplify  # noqa: E402
from quern.optimize._report import Report  # noqa: E402
from torch import nn  # noqa: E402


class Of(nn.Module):
    def __init__(self, forward, **weights):
        super().__init__()
        for name, weight in weights.items():
            setattr(self, name, nn.Parameter(weight))
        self.function = forward

    def forward(self, *args):
        return self.function(self, *args)


def plans(model, *args):
    """The program of PyTorch's ops, held against the model, and the ops of its graph."""
    with torch.no_grad():
        search = _search.Search(model, model, args, {}, Report())
        one = next(one for one in search.alternatives() if one.name == "PyTorch's ops")
        fast, want = search.fast(one), model(*args)
        for _ in range(2):
            got = fast(*args)
            assert got.shape == want.shape and got.stride() == want.stride()
            torch.testing.assert_close(got, want)
    return one.program.text, [node.op.split(".")[1] for node in one.main.nodes]


W = torch.randn(5, 7)
ONE_PRODUCT = {
    "rows of a batch": (lambda m, x: x @ m.w, (torch.randn(3, 4, 5),)),
    "transposed, of few rows": (lambda m, x: x.transpose(0, 1) @ m.w, (torch.randn(4, 3, 5),)),
    "a row each": (lambda m, x: torch.bmm(x[:, None], m.w.expand(3, 5, 7)), (torch.randn(3, 9)[:, :5],)),
    "expanded": (lambda m, x: torch.bmm(x, m.w.expand(3, 5, 7)), (torch.randn(3, 4, 5),)),
    "a batch of one": (lambda m, x: torch.bmm(x, m.w[None]), (torch.randn(1, 4, 5),)),
    "einsum": (lambda m, x: torch.einsum("bijl,lk->bijk", x, m.w), (torch.randn(2, 3, 4, 5),)),
    "einsum of two": (lambda m, x: torch.einsum("bik,ijk->bj", x, m.w.view(5, 1, 7)), (torch.randn(3, 5, 7),)),
}


@pytest.mark.parametrize("case", ONE_PRODUCT)
def test_products_with_one_matrix_are_one(case):
    forward, args = ONE_PRODUCT[case]
    _, ops = plans(Of(forward, w=W), *args)
    assert "bmm" not in ops and ops.count("mm") == 1


def exclusive(m, x):
    sums = x.narrow(1, 0, x.shape[1] - 1).cumsum(1)
    return torch.cat([torch.zeros_like(x[:, :1]), sums], 1)


SCANS = {
    "exclusive": (exclusive, True),
    "products": (lambda m, x: torch.cat([torch.ones(3, 2, 4), x.cumprod(-2)], 1), True),
    "of another dimension": (lambda m, x: torch.cat([torch.zeros_like(x[:, :1]), x.cumsum(2)], 1), False),
    "from one": (lambda m, x: torch.cat([torch.ones_like(x[:, :1]), x.cumsum(1)], 1), False),
    "zeros behind": (lambda m, x: torch.cat([x.cumsum(1), torch.zeros_like(x[:, :1])], 1), False),
    "of whole numbers": (lambda m, x: torch.cat([torch.zeros(3, 1, 4).long(), (x > 0).cumsum(1)], 1), False),
    "that is read elsewhere": (lambda m, x: (lambda s: torch.cat([torch.zeros(3, 1, 4), s], 1)[:, 1:] * s)(x.cumsum(1)),
                               False),
}  # fmt: skip


@pytest.mark.parametrize("case", SCANS)
def test_an_exclusive_scan_is_one_scan(case):
    forward, one = SCANS[case]
    _, ops = plans(Of(forward), torch.randn(3, 5, 4))
    scan = next(k for k, op in enumerate(ops) if op in ("cumsum", "cumprod"))
    assert ("cat" in ops[:scan]) == one


def test_a_product_of_a_product():
    square, both = torch.randn(4, 4).expand(3, 4, 4), lambda m, x, w: torch.bmm(torch.bmm(x, w), w)
    ops = plans(Of(both), torch.randn(3, 6, 4), square)[1]
    assert ops.count("mm") == 2 and "bmm" not in ops


def test_other_batches_stay():
    many = _simplify.FEW_ROWS + 1
    for forward, x in (
        (lambda m, x: torch.bmm(x, m.w.view(5, 7, 1).expand(5, 7, 3)), torch.randn(5, 4, 7)),  # a matrix each
        (
            lambda m, x: torch.bmm(x.transpose(0, 1), m.w.expand(3, 5, 7)),
            torch.randn(many, 3, 5),
        ),  # a copy would cost more
        (lambda m, x: torch.bmm(x, m.w[:0].expand(3, 0, 7)), torch.randn(3, 4, 0)),
    ):
        assert "bmm" in plans(Of(forward, w=W), x)[1]


def test_views_that_change_nothing_go():
    _, ops = plans(Of(lambda m, x: x.view(3, 4).expand(3, 4).sin().view(2, 6).permute(0, 1) + 1), torch.randn(3, 4))
    assert ops == ["sin", "view", "add"]
    assert plans(Of(lambda m, x: x.t().t().unsqueeze(0).squeeze(0).sin().view(3, 4)), torch.randn(3, 4))[1] == ["sin"]
    assert plans(Of(lambda m, x: x.view(3, 4)), torch.randn(3, 4))[1] == ["view"]  # another tensor than the input


def test_additions_at_indices_stay_one_op():
    at = torch.tensor([0, 2, 2, 1])
    forward = lambda m, x: m.w.index_add(0, at, x).scatter_add(1, at.view(1, 4).expand(5, 4), x[:, :5].t())  # noqa: E731
    ops = plans(Of(forward, w=W), torch.randn(4, 7))[1]
    assert {"index_add", "scatter_add"} <= {*ops} and "index_put" not in ops


def test_small_tensors_that_are_always_alike_are_made_once():
    forward = lambda m, x: torch.zeros(5).scatter_add(0, torch.arange(5), x)  # noqa: E731
    text, _ = plans(Of(forward), torch.randn(5))
    body = text.partition("def quern_plan")
    assert "aten_full(" in body[0] and "arange" in body[0] and "full(" not in body[2] and "arange(" not in body[2]
    for own in (lambda m, x: torch.arange(5) + 0 * x, lambda m, x: torch.arange(6).view(2, 3)):
        model = Of(own)
        with torch.no_grad():
            search = _search.Search(model, model, (torch.randn(5),), {}, Report())
            fast = search.fast(search.alternatives()[0])
            first = fast(torch.zeros(5))
            first += 1  # the caller's
            assert torch.equal(fast(torch.zeros(5)), model(torch.zeros(5)))
