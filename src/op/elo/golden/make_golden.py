# SPDX-License-Identifier: Apache-2.0
"""Make the golden vectors of elo: python3 src/op/elo/golden/make_golden.py > src/op/elo/golden/elo.txt, by the plain
form of the mathematics that small_fc_lopt's script has, which knows what differs."""

import importlib.util
import pathlib

path = pathlib.Path(__file__).resolve().parents[2] / "small_fc_lopt/golden/make_golden.py"
spec = importlib.util.spec_from_file_location("small_fc_lopt", path)
of_both = importlib.util.module_from_spec(spec)
spec.loader.exec_module(of_both)

if __name__ == "__main__":
    print("# Golden vectors of elo. Made by: python3 src/op/elo/golden/make_golden.py")
    of_both.case("elo", "elo", 0.01, 0.1)
    of_both.case("elo_jax", "elo", 0.01, 0.1, shapes=of_both.EQUAL[:2], ties="jax")
