# SPDX-License-Identifier: Apache-2.0
"""The solution of problem 9: the problem's constructor gives it the mode."""

import pathlib
import runpy

ModelNew = runpy.run_path(str(pathlib.Path(__file__).with_name("9_resnet18_train.py")))["ModelNew"]
