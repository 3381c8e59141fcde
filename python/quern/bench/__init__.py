# SPDX-License-Identifier: Apache-2.0
"""`python -m quern.bench lion`: quern's op, called from Python, beside the other implementations of it that are
installed here. Each is held against a float64 oracle first, then all are timed in turns on the same tensors; the result
is printed and kept as a line of the JSON that the command's `quern bench` writes (docs/benchmarking.md). Nothing is
imported here: PyTorch is, in the modules below."""
