# SPDX-License-Identifier: Apache-2.0
"""A generator of `quern search` that asks a language model behind a chat-completion endpoint: standard library only.

quern search PROBLEM --generator "python3 -m quern.generators.chat --endpoint http://localhost:8000/v1 --model NAME"
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import urllib.error
import urllib.request

from ._talk import Talk

MOST_BYTES = 8 << 20  # of an answer
MOST_FAILURES = 3  # in a row
MOST_TOLD = 6  # candidates that a prompt has
BLOCK = re.compile(r"^```[^\n`]*\n(.*?)^```", re.MULTILINE | re.DOTALL)

SYSTEM = (
    "You write fast compute kernels. A judge compiles your answer, compares its outputs with a reference on data that "
    "you do not see, and times it against the baseline. Only a correct answer counts, then speed. Answer with one "
    "fenced code block that holds the whole file, and nothing after it."
)


class Failure(Exception):
    """A sentence for people."""


def _facts(message: dict) -> str:
    """Time, limit and speed-up, where they are known."""
    parts = []
    if isinstance(message.get("time_ns"), (int, float)):
        parts.append(f"time {message['time_ns'] / 1000:.4g} us")
    if isinstance(message.get("speedup"), (int, float)):
        parts.append(f"{message['speedup']:.3f} times the baseline's speed")
    if isinstance(message.get("floor_ns"), (int, float)):
        parts.append(f"the machine's limit is {message['floor_ns'] / 1000:.4g} us, by {message.get('bound', '?')}")
    return ", ".join(parts)


def _fenced(source: str) -> str:
    return f"```\n{source.rstrip()}\n```"


def _task(problem: dict) -> list[str]:
    device = problem.get("device", {})
    told = [f"Device: {device.get('device', '?')} ({device.get('backend', '?')})."]
    if problem["kind"] == "model":
        told += [
            "This PyTorch file has a class Model with get_inputs() and get_init_inputs():",
            _fenced(problem["source"]),
            "Write a Python file with a class ModelNew with the same constructor and the same outputs, and faster. It "
            "may use PyTorch, Triton, or CUDA through torch.utils.cpp_extension.load_inline.",
        ]
    else:
        others = [n for n in problem.get("files", {}) if n not in ("kernel.json", problem.get("body"))]
        told += [
            f"A kernel's folder has this kernel.json, which declares tensors, templates and launch:\n"
            f"{_fenced(json.dumps(problem.get('kernel', {}), indent=1))}",
            *(f"{name}:\n{_fenced(problem['files'][name])}" for name in others),
            f"This is its body {problem.get('body')}, one thread's work, whose signature is generated:",
            _fenced(problem["source"]),
            "Write a faster body with the same results, for the same launch, in the same language.",
        ]
    facts = _facts(problem)
    return [*told, f"Now: {facts}."] if facts else told


def prompt(problem: dict, ask: dict, told: list[tuple[str, dict]]) -> list[dict]:
    """The messages of a request: the task, the best so far, and what came of the latest answers."""
    text = _task(problem)
    best = ask.get("best") or {}
    if best.get("generator") and isinstance(best.get("source"), str):
        text += [f"The best answer so far ({_facts(best)}):", _fenced(best["source"])]
    for source, tell in told[-MOST_TOLD:]:
        word = "correct, " + tell["verdict"] if tell.get("correct") else tell["verdict"]
        reason = f": {tell['reason']}" if tell.get("reason") else ""
        facts = _facts(tell)
        text.append(f'An answer of yours was judged "{word}"{reason}{" (" + facts + ")" if facts else ""}.')
        if not tell.get("correct"):
            text.append(_fenced(source))
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "\n\n".join(text)}]


def code_of(answer: str) -> str | None:
    """The last fenced block."""
    blocks = BLOCK.findall(answer if answer.endswith("\n") else answer + "\n")
    return blocks[-1] if blocks and blocks[-1].strip() else None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key goes to the server that was named, and to no other."""

    def redirect_request(self, *_):
        return None


class Endpoint:
    """One model of one server."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.url = arguments.endpoint.rstrip("/") + "/chat/completions"
        self.options = {"model": arguments.model}
        if arguments.temperature is not None:
            self.options["temperature"] = arguments.temperature
        self.timeout = arguments.timeout
        self.opener = urllib.request.build_opener(_NoRedirect)
        self.headers = {"Content-Type": "application/json"}
        key = os.environ.get(arguments.key_variable)
        if key:
            self.headers["Authorization"] = f"Bearer {key}"

    def _post(self, body: bytes) -> bytes:
        request = urllib.request.Request(self.url, data=body, headers=self.headers)
        with self.opener.open(request, timeout=self.timeout) as reply:
            answer: bytes = reply.read(MOST_BYTES + 1)
        if len(answer) > MOST_BYTES:
            raise Failure(f"the answer has more than {MOST_BYTES >> 20} MiB")
        return answer

    def answer(self, messages: list[dict], seed: int) -> str:
        """The model's text. A server that is busy is asked again, later."""
        body = json.dumps({**self.options, "messages": messages, "seed": seed}).encode()
        for wait in (1, 4, 16, None):
            try:
                made = json.loads(self._post(body))
                text = made["choices"][0]["message"]["content"]
            except urllib.error.HTTPError as error:
                if wait is None or (error.code != 429 and error.code < 500):
                    raise Failure(f"{self.url} answers {error.code} {error.reason}") from None
                time.sleep(wait)
            except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
                raise Failure(f"{self.url}: {type(error).__name__}: {error}") from None
            else:
                if not isinstance(text, str):
                    raise Failure(f"{self.url} gave no text")
                return text
        raise AssertionError


class Chat(Talk):
    """Candidates are the model's answers."""

    def __init__(self, endpoint: Endpoint, to, most: int) -> None:
        super().__init__(to)
        self.endpoint, self.most = endpoint, most
        self.sources: dict[str, str] = {}
        self.latest: list[tuple[str, dict]] = []
        self.asked = 0

    def propose(self, ask: dict) -> bool:
        messages = prompt(self.problem, ask, self.latest)
        for _ in range(MOST_FAILURES):
            if self.most and self.asked >= self.most:
                return False
            self.asked += 1
            try:
                source = code_of(self.endpoint.answer(messages, self.problem.get("seed", 1) * 1000003 + self.asked))
                if source is None:
                    raise Failure("the answer has no code block")
            except Failure as failure:
                self.say(type="log", text=str(failure))
                continue
            name = f"chat-{self.asked}"
            self.sources[name] = source
            kind = "model" if self.problem["kind"] == "model" else "body"
            self.say(type="candidate", id=name, kind=kind, source=source, note=f"request {self.asked}")
            return True
        return False

    def told(self, tell: dict) -> None:
        if tell.get("id") in self.sources:
            self.latest.append((self.sources.pop(tell["id"]), tell))
            del self.latest[:-MOST_TOLD]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m quern.generators.chat", description=__doc__.splitlines()[0])
    add = parser.add_argument
    base = os.environ.get("OPENAI_BASE_URL")
    add("--endpoint", metavar="URL", default=base, required=not base, help="such as http://localhost:8000/v1; "
        "$OPENAI_BASE_URL unless given")  # fmt: skip
    add("--model", metavar="NAME", required=True, help="as the server names it")
    add("--key-variable", metavar="NAME", default="OPENAI_API_KEY", help="the variable that holds the key, if one is "
        "wanted; OPENAI_API_KEY unless given")  # fmt: skip
    add("--temperature", type=float, metavar="T", help="the server's own unless given")
    add("--timeout", type=float, default=240.0, metavar="S", help="of a request; 240 seconds unless given")
    add("--most", type=int, default=0, metavar="N", help="end after N requests; no limit unless given")
    arguments = parser.parse_args(words)
    if not arguments.endpoint.startswith(("http://", "https://")):
        parser.error(f"--endpoint is {arguments.endpoint}, it must begin with http:// or https://")
    Chat(Endpoint(arguments), sys.stdout, arguments.most).listen(sys.stdin)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
