# SPDX-License-Identifier: Apache-2.0
"""Refusals follow the arrays that a call writes: an array that is only read may be read-only, a written one may not,
for every op, function and shipped kernel."""

import pytest

numpy = pytest.importorskip("numpy")
ml_dtypes = pytest.importorskip("ml_dtypes")
from written_cases import CASES  # noqa: E402


def maker():
    draw = numpy.random.default_rng(7)

    def make(shape, dtype, spd=False):
        values = draw.uniform(0.5, 1.5, shape)
        if spd:
            values = values @ numpy.swapaxes(values, -1, -2) + shape[-1] * numpy.eye(shape[-1])
        return values.astype(getattr(ml_dtypes, dtype, None) or dtype)

    return make


def run(case, read_only=()):
    """(names of the arrays that are changed, all of them after the call, what was raised)."""
    call, arrays, said = case(maker())
    before = {name: array.tobytes() for name, array in arrays.items()}
    for name in read_only:
        arrays[name].flags.writeable = False
    error = None
    try:
        call()
    except (TypeError, ValueError) as raised:
        error = str(raised)
    return {name for name, array in arrays.items() if array.tobytes() != before[name]}, arrays, said, error


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_read_only_arrays_are_refused_where_they_would_be_written(case):
    written, after, said, error = run(case)
    assert error is None and written == said
    again, arrays, _, error = run(case, set(after) - written)
    assert error is None and again == written
    assert all(after[name].tobytes() == arrays[name].tobytes() for name in after)
    for name in written:
        changed, _, _, error = run(case, [name])
        assert not changed and error is not None and "read-only" in error
