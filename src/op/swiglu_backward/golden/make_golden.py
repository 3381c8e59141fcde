#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden vectors of swiglu_backward:
python3 src/op/swiglu_backward/golden/make_golden.py > src/op/swiglu_backward/golden/swiglu_backward.txt
How stands beside the forward's: src/op/swiglu/golden/make_golden.py."""
import importlib.util
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("swiglu", HERE.parent.parent / "swiglu" / "golden" / "make_golden.py")
swiglu = importlib.util.module_from_spec(spec)
spec.loader.exec_module(swiglu)
swiglu.main("swiglu_backward")
