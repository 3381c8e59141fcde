# SPDX-License-Identifier: Apache-2.0
"""The generator that asks a chat-completion endpoint, against a server of the test's own: what it sends, what it makes
of good and bad answers, and a whole search over it."""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest
from quern._command import environment, find
from quern.generators import chat

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBLEM = {"type": "problem", "kind": "model", "source": "class Model: pass", "seed": 3, "accepts": ["model"],
           "device": {"device": "H200", "backend": "cuda:0"}, "floor_ns": 1000, "bound": "memory"}  # fmt: skip
ASK = {"type": "ask", "n": 8, "seconds_left": 9.0, "best": None}
END = {"type": "end"}


class Server(http.server.ThreadingHTTPServer):
    """Gives the answers in their order, the last one again and again, and keeps the requests."""

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.requests = list(answers), []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *error):
        self.shutdown()
        super().__exit__(*error)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, dict(self.headers), body))
        answer = self.server.answers[0] if len(self.server.answers) == 1 else self.server.answers.pop(0)
        status, text = answer if isinstance(answer, tuple) else (200, completion(answer))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", text)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def completion(text):
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]})


def talk(server, *lines, options=(), **variables):
    """What the generator writes, and its exit status."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "no_proxy": "*", **variables}
    words = [sys.executable, "-m", "quern.generators.chat", "--endpoint", server.url, "--model", "m", *options]
    done = subprocess.run(words, input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True,
                          text=True, env=env, timeout=120)  # fmt: skip
    assert not done.stderr, done.stderr
    assert done.returncode == 0
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_candidate_is_the_last_fenced_block():
    with Server("First:\n```python\nold\n```\nBetter:\n```python\nclass ModelNew: pass\n```\nGood luck.") as server:
        (said,) = talk(server, PROBLEM, ASK, END)
    assert (said["type"], said["kind"], said["source"]) == ("candidate", "model", "class ModelNew: pass\n")
    ((path, _, body),) = server.requests
    assert path == "/v1/chat/completions"
    assert body["model"] == "m" and [m["role"] for m in body["messages"]] == ["system", "user"]


def test_the_prompt_has_problem_limit_best_and_what_was_wrong():
    best = {"id": "b", "hash": "0", "generator": 2, "kind": "model", "source": "THE BEST", "speedup": 1.5}
    tell = {"type": "tell", "id": "chat-1", "verdict": "wrong values", "reason": "element 3", "line": 7}
    with Server("```\nONE\n```", "```\nTWO\n```") as server:
        said = talk(server, PROBLEM, ASK, tell, {**ASK, "best": best}, END)
    assert [s["source"] for s in said] == ["ONE\n", "TWO\n"]
    first, second = (body["messages"][1]["content"] for _, _, body in server.requests)
    for word in ("class Model: pass", "H200", "1 us", "memory", "ModelNew"):
        assert word in first
    assert "THE BEST" not in first
    for word in ("THE BEST", "1.500 times", "wrong values", "element 3", "ONE"):
        assert word in second


def test_a_kernel_is_asked_for_a_body():
    files = {"kernel.json": "{}", "a.metal": "BODY", "reference.metal": "REFERENCE"}
    kernel = {"kind": "kernel", "body": "a.metal", "source": "BODY", "kernel": {"name": "a", "grid": ["n"]}}
    problem = {**PROBLEM, **kernel, "files": files}
    with Server("```metal\nNEW\n```") as server:
        (said,) = talk(server, problem, ASK, END)
    assert (said["kind"], said["source"]) == ("body", "NEW\n")
    text = server.requests[0][2]["messages"][1]["content"]
    assert "REFERENCE" in text and '"grid"' in text and text.count("BODY") == 1


def test_the_key_comes_from_the_environment_alone():
    with Server("```\nx\n```") as server:
        talk(server, PROBLEM, ASK, END, options=("--key-variable", "MY_KEY"), MY_KEY="secret")
        said = talk(server, PROBLEM, ASK, END, options=("--key-variable", "NO_KEY"), MY_KEY="secret")
    (_, with_key, body), (_, without, _) = server.requests
    assert with_key["Authorization"] == "Bearer secret" and "Authorization" not in without
    assert "secret" not in json.dumps(body) + json.dumps(said)


def test_the_key_does_not_follow_a_redirection():
    with Server("```\nx\n```") as other, Server((302, other.url)) as server:
        said = talk(server, PROBLEM, ASK, END, OPENAI_API_KEY="secret")
    assert not other.requests
    assert said[-1] == {"type": "done"} and "302" in said[0]["text"]


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        ("I cannot help.", "no code block"),
        ((200, "this is no JSON"), "JSONDecodeError"),
        ((200, '{"choices": []}'), "IndexError"),
        ((200, '{"choices": [{"message": {"content": null}}]}'), "gave no text"),
        ((401, "no"), "answers 401"),
    ],
)
def test_bad_answers_are_sentences_and_then_the_end(answer, word):
    with Server(answer) as server:
        said = talk(server, PROBLEM, ASK, END)
    assert [s["type"] for s in said] == ["log"] * 3 + ["done"]
    assert all(word in s["text"] for s in said[:3])


def test_a_busy_server_is_asked_again():
    with Server((503, ""), (429, ""), "```\nx\n```") as server:
        (said,) = talk(server, PROBLEM, ASK, END)
    assert said["source"] == "x\n" and len(server.requests) == 3


def test_requests_are_bounded():
    with Server("```\nx\n```") as server:
        said = talk(server, PROBLEM, ASK, ASK, END, options=("--most", "1"))
    assert [s["type"] for s in said] == ["candidate", "done"]


@pytest.mark.parametrize("text", ["", "no block", "```\n\n```", "```python\nopen"])
def test_no_block_is_none(text):
    assert chat.code_of(text) is None


def test_a_whole_search(tmp_path):
    kernel = tmp_path / "exp"
    kernel.mkdir()
    for file in (ROOT / "kernels/exp").iterdir():
        (kernel / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    judge = tmp_path / "judge"
    judge.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/search/judge.py" "$@"\n', encoding="utf-8")
    judge.chmod(0o755)
    env = {**environment(), "PYTHONPATH": str(ROOT / "python"), "JUDGED": str(tmp_path / "judged"), "no_proxy": "*"}
    if "QUERN_LIBRARY" in os.environ:
        env["QUERN_LIBRARY"] = os.environ["QUERN_LIBRARY"]
    with Server("```\n// WRONG\n```", "```\n// SPEED=1.7\n```") as server:
        generator = f"'{sys.executable}' -m quern.generators.chat --endpoint {server.url} --model m --most 3"
        words = [find(), "search", str(kernel), "--backend", "cpu", "--judge", str(judge), "--generator", generator,
                 "--store", str(tmp_path / "store")]  # fmt: skip
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "best: 1.700x" in done.stdout and "wrong values" in done.stdout
    assert "body.metal:7" in server.requests[1][2]["messages"][1]["content"]
