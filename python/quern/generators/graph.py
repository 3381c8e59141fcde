# SPDX-License-Identifier: Apache-2.0
"""The generator "graph" of `quern search`: the alternatives of quern.optimize for a PyTorch file, each as a file with
ModelNew. All are written at the first request, so that nothing computes here while a candidate is timed."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Iterator

from ._talk import Talk


def sources(text: str, name: str, device: str) -> Iterator[tuple[str, str, str]]:
    """(the alternative's name, the text of its file, why there is none). Of a problem that cannot be read, run or
    captured, one without a file."""
    import torch

    from ..optimize import _export, _problem
    from ..optimize._report import Report
    from ..optimize._search import Search

    report = Report()
    try:
        problem = _problem.open_problem(text, name, torch.device(device))
        search = Search(problem.model, problem.model, problem.inputs, {}, report)
        alternatives = search.alternatives()
    except _problem.Bad as error:
        yield name, "", str(error)
        return
    except Exception as error:  # whatever it is, the problem itself stays
        yield name, "", _sentence(error)
        return
    for alternative in alternatives:
        search.report = dataclasses.replace(report, chosen=alternative.name, reasons={})
        try:
            found = search.found(alternative, search.fast(alternative))
            made = _export.module_text(text, found, search.report, problem.init)
        except Exception as error:
            yield alternative.name, "", _sentence(error)
        else:
            yield alternative.name, made, ""


def _sentence(error: Exception) -> str:
    first = str(error).splitlines()[0] if str(error) else ""
    return first if type(error).__name__ == "Unplannable" else f"{type(error).__name__}: {first}"


class Graph(Talk):
    """Candidates are the alternatives of a plan, in the order of quern.optimize."""

    left: list[tuple[str, str]] | None = None

    def propose(self, ask: dict) -> bool:
        if self.left is None:
            self.left = list(self._made())
        now, self.left = self.left[: ask["n"]], self.left[ask["n"] :]
        for name, source in now:
            self.say(type="candidate", id=name, kind="model", source=source, note=name)
        return bool(now)

    def _made(self) -> Iterator[tuple[str, str]]:
        import torch

        problem = self.problem
        if problem["kind"] != "model":
            self.say(type="log", text=f"{problem['name']} is no PyTorch file")
            return
        with contextlib.redirect_stdout(sys.stderr):  # of the problem's own prints
            made = list(sources(problem["source"], problem["name"] + ".py", problem["device"]["backend"]))
        torch.cuda.empty_cache()  # the judge may need that memory
        for name, source, why in made:
            if why:
                self.say(type="log", text=f"{name}: {why}")
            else:
                yield name, source


def main() -> int:
    try:
        import torch  # noqa: F401 - a clear sentence where it is missing
    except ImportError:
        print("python -m quern.generators.graph: PyTorch is wanted: pip install 'quern[torch]'", file=sys.stderr)
        return 2
    Graph(sys.stdout).listen(sys.stdin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
