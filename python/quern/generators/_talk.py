# SPDX-License-Identifier: Apache-2.0
"""The protocol of a generator of `quern search` (docs/search-protocol.schema.json): standard library only."""

from __future__ import annotations

import json
from collections.abc import Iterable


class Talk:
    """A generator: a subclass proposes candidates. to: where its lines go."""

    def __init__(self, to) -> None:
        self.to = to
        self.problem: dict = {}

    def propose(self, ask: dict) -> bool:
        """Says a candidate or more. False: there are no more."""
        raise NotImplementedError

    def told(self, tell: dict) -> None:
        """What came of a candidate."""

    def say(self, **message) -> None:
        print(json.dumps(message), file=self.to, flush=True)

    def hear(self, message: dict) -> bool:
        """One line of the search. False: the end."""
        kind = message.get("type")
        if kind == "problem":
            self.problem = message
        elif kind == "tell":
            self.told(message)
        elif kind == "ask" and not self.propose(message):
            self.say(type="done")
            return False
        return kind != "end"

    def listen(self, lines: Iterable[str]) -> None:
        for line in lines:
            if not self.hear(json.loads(line)):
                break
